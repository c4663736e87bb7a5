// Reads the data, builds the sections, keeps the reader's place.

const RELOAD_SECONDS = 4;
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

function sectionsOf(data, again) {
  if (data.plan) return planPage(data.plan);
  const runs = data.runs.map((run, k) => withSeed(Object.assign(run, { id: data.runs.length > 1 ? `run-${k}-` : "" })));
  const several = runs.length > 1;
  const all = several ? [compareSection(runs), curvesSection(runs)] : [];
  for (const run of runs) {
    all.push(summarySection(run, run.id, again));
    if (!several) all.push(curvesSection(runs));
    all.push(planSection(run, run.id), memorySection(run, run.id), messagesSection(run, run.id), kernelsSection(run, run.id),
      timelineSection(run, run.id), classesSection(run, run.id), remarksSection(run, run.id));
  }
  return all.filter(Boolean);
}

/// Renews itself by loading the file anew: that works from a disk and inside of another page, such as a notebook, where
/// a script may fetch nothing. The writer replaces the file by renaming, which NFS does as a whole too, and takes no
/// lock: a reader gets the old page or the new one.
function renew() {
  document.getElementById("live").textContent = "● running: this page renews itself";
  // Not while something is held: the reader comes first.
  let held = false;
  addEventListener("pointerdown", () => { held = true; });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { held = false; });
  setInterval(() => { if (!held && !document.hidden) location.reload(); }, RELOAD_SECONDS * 1000);
}

function start(data) {
  const main = document.getElementById("main");
  let sections = [];
  const drawAll = () => sections.forEach((part) => part.start && part.start());
  const build = () => {
    sections = sectionsOf(data, (focus) => { build(); document.getElementById(focus).focus(); });
    main.replaceChildren(el("h1", { class: "unseen" }, document.title), ...sections);
    document.getElementById("contents").replaceChildren(...sections.filter((part) => data.runs.length < 2 || !/^run-\d+-(?!summary)/.test(part.id))
      .map((part) => el("a", { href: `#${part.id}` }, part.querySelector("h2").textContent)));
    drawAll();
  };
  build();
  document.getElementById("made").textContent = `Made ${date(data.made)} by Graphweft ${data.version}.`;
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
  if (kept.get("scroll", 0)) scrollTo(0, kept.get("scroll", 0));
  addEventListener("scroll", () => kept.set("scroll", scrollY), { passive: true });
  if (data.live) renew();
  else kept.set("scroll", 0);
  document.documentElement.dataset.drawnMs = performance.now() - began;
  document.documentElement.dataset.ready = "true";
}

setTheme(kept.get("theme", "system"));
read().then(start).catch((error) => {
  document.getElementById("main").replaceChildren(el("p", { class: "remark" }, `The data of this page cannot be read: ${error.message}. `,
    "Browsers since 2023 can; or the file was cut short: make it again with graphweft report."));
});
