// Reads the data, builds the sections, keeps the reader's place.

const RELOAD_SECONDS = 4;
/// After so long without another page, and twice as long as the page says that the next one takes at most, the run may
/// have ended.
const QUIET_MS = 120000;
const began = performance.now();

async function read() {
  const text = document.getElementById("data").textContent.trim();
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = `Theme: ${theme}`;
  kept.set("theme", theme);
}

/// The seed of a run whose plan, memory, messages, kernels and timeline are shown: the first, until the reader chooses.
function chosenSeed(run) {
  const wanted = kept.get(`${run.id}seed`, null);
  return run.seeds.find((seed) => seed.seed === wanted) || run.seeds[0] || {};
}

/// The run with the files of that seed.
function withSeed(run) {
  const { plan, usage, trace, seed } = chosenSeed(run);
  return { ...run, plan, usage, trace, shownSeed: run.seeds.length > 1 ? seed : null };
}

/// A section, or that it cannot be shown: a file of another shape than any version wrote should cost one section.
function safely(id, make) {
  try { return make(); } catch (error) {
    return section(`${id}-lost`, `${id[0].toUpperCase()}${id.slice(1)}`, null, el("p", { class: "remark" }, `This section cannot be shown, as a file has another form than it should: ${error.message}.`));
  }
}

function sectionsOf(data, again) {
  if (data.plan) return planPage(data.plan, data.title);
  const runs = data.runs.map((run, k) => withSeed(Object.assign(run, { id: data.runs.length > 1 ? `run-${k}-` : "" })));
  const several = runs.length > 1;
  const all = several ? [safely("compare", () => compareSection(runs)), curvesSection(runs)] : [];
  const parts = { plan: planSection, memory: memorySection, messages: messagesSection, kernels: kernelsSection, timeline: timelineSection, classes: classesSection, remarks: remarksSection };
  for (const run of runs) {
    all.push(safely("summary", () => summarySection(run, run.id, again)));
    if (!several) all.push(curvesSection(runs));
    for (const [id, make] of Object.entries(parts)) all.push(safely(id, () => make(run, run.id)));
  }
  return all.filter(Boolean);
}

/// Renews itself by loading the file anew: that works from a disk and inside of another page, such as a notebook, where
/// a script may fetch nothing. The writer replaces the file by renaming, which NFS does as a whole too, and takes no
/// lock: a reader gets the old page or the new one.
function renew(made, renewals) {
  const live = document.getElementById("live"), pause = document.getElementById("pause");
  const news = kept.get("news", {});
  if (news.made !== made) kept.set("news", { made, at: Date.now() });
  const quiet = news.made === made ? Date.now() - news.at : 0;
  const most = Math.max(QUIET_MS, 2 * (renewals && known(renewals.next_ms) ? renewals.next_ms : 0));
  const show = () => {
    pause.hidden = false;
    pause.textContent = kept.get("paused", false) ? "Go on renewing" : "Stop renewing";
    live.textContent = kept.get("paused", false) ? "as it was when renewing was stopped"
      : quiet > most ? `nothing new for ${duration(quiet)}: has the run ended?` : "● running: this page renews itself";
  };
  pause.addEventListener("click", () => { kept.set("paused", !kept.get("paused", false)); show(); });
  show();
  // Not while something is held or marked: the reader comes first.
  let held = false;
  addEventListener("pointerdown", () => { held = true; });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { held = false; });
  setInterval(() => {
    if (held || document.hidden || kept.get("paused", false) || !getSelection().isCollapsed) return;
    kept.set("focus", focusable().indexOf(document.activeElement));
    location.reload();
  }, RELOAD_SECONDS * 1000);
}

const focusable = () => [...document.querySelectorAll("a, button, input, select, summary, [tabindex]")];

/// What was unfolded stays so, and the keyboard stays where it was.
function restore(live) {
  const all = [...document.querySelectorAll("main details")], open = kept.get("open", []);
  all.forEach((one, k) => {
    if (open.includes(k)) one.open = true;
    one.addEventListener("toggle", () => kept.set("open", all.flatMap((other, place) => (other.open ? [place] : []))));
  });
  const focused = live ? focusable()[kept.get("focus", -1)] : null;
  if (focused) focused.focus({ preventScroll: true });
  if (kept.get("scroll", 0)) scrollTo({ top: kept.get("scroll", 0), behavior: "instant" });
  addEventListener("scroll", () => kept.set("scroll", scrollY), { passive: true });
}

/// What the pages before this one have cost the run.
const renewedText = (renewals) => (renewals && renewals.pages > 0 && renewals.run_ms > 0
  ? ` It was renewed ${counted(renewals.pages, "time", "times")} before, which took ${((100 * renewals.spent_ms) / renewals.run_ms).toFixed(2)} % of ${duration(renewals.run_ms)}.` : "");

function start(data) {
  const main = document.getElementById("main");
  let sections = [];
  const drawAll = () => sections.forEach((part) => part.start && part.start());
  const build = () => {
    sections = sectionsOf(data, (focus) => { build(); document.getElementById(focus).focus(); });
    main.replaceChildren(el("h1", { class: "unseen" }, document.title), ...sections);
    document.getElementById("contents").replaceChildren(...sections.filter((part) => data.runs.length < 2 || !/^run-\d+-(?!summary)/.test(part.id))
      .map((part) => el("a", { href: `#${part.id}` }, part.id === "summary" ? "Summary" : part.querySelector("h2").textContent)));
    drawAll();
  };
  build();
  document.getElementById("made").textContent = `Made ${date(data.made)} by Graphweft ${data.version}.${renewedText(data.renewals)}`;
  const themes = ["system", "light", "dark"];
  setTheme(kept.get("theme", "system"));
  document.getElementById("theme").addEventListener("click", () => {
    setTheme(themes[(themes.indexOf(kept.get("theme", "system")) + 1) % themes.length]);
    drawAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  const resizeAll = () => sections.forEach((part) => part.resize && part.resize());
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(resizeAll, 150); });
  // Paper is white and narrower than the window.
  const paper = matchMedia("print");
  paper.addEventListener("change", () => { drawAll(); resizeAll(); });
  restore(data.live);
  if (data.live) renew(data.made, data.renewals);
  else kept.set("focus", -1);
  document.documentElement.dataset.drawnMs = performance.now() - began;
  document.documentElement.dataset.ready = "true";
}

setTheme(kept.get("theme", "system"));
read().then(start).catch((error) => {
  document.getElementById("main").replaceChildren(el("p", { class: "remark" }, `The data of this page cannot be read: ${error.message}. `,
    "Browsers since 2023 can; or the file was cut short: make it again with graphweft report."));
});
