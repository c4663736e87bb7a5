// How the work was spread, what else was looked at, and whether the prediction held.

function planSection(run, prefix) {
  const plan = run.plan;
  if (!plan || typeof plan !== "object" || !plan.strategy) return null;
  const again = { none: "nothing", attention: "attention", layer: "whole layers" }[plan.remat] || plan.remat;
  const rows = [["strategy", plan.strategy], ["ranks", known(plan.ranks) ? whole(plan.ranks) : null],
    ["partition", plan.partition && `${plan.partition.method}, ${counted(plan.partition.parts, "part", "parts")}`], ["computed again in backward", again]];
  return section(`${prefix}plan`, titled(run, "Plan"), ofSeed(run, plan.why ? `Why ${plan.strategy}: ${plan.why}.` : null),
    el("div", { class: "halves" }, el("div", null, el("h3", null, "Choice"), facts(rows, "Choice")), predictionOf(plan)),
    candidatesOf(plan.candidates || [], plan.strategy));
}

/// What was expected, and what came.
function predictionOf({ predicted, measured }) {
  if (!predicted && !measured) return null;
  const of = (one, key) => (one && known(one[key]) ? one[key] : null);
  const row = (name, key, show, error) => {
    const [a, b] = [of(predicted, key), of(measured, key)];
    return [name, show(a), show(b), known(a) && known(b) && b > 0 ? `${signed((100 * (a - b)) / b, 1)} %` : "–", error];
  };
  const error = of(predicted, "error");
  const rows = [row("epoch", "epoch_ms", duration, known(error) ? `± ${(100 * error).toFixed(0)} %` : "–"), row("peak memory of a rank", "peak_bytes", bytes, "–")];
  return el("div", null, el("h3", null, "Predicted against measured"),
    table(["of", "predicted", "measured", "difference", "stated error"].map((title, k) => ({ title, value: (cells) => cells[k], number: k > 0 })), rows, { label: "Predicted against measured" }));
}

/// Every way that the planner looked at: a picture of those that fit, a table of all.
function candidatesOf(candidates, strategy) {
  if (!candidates.length) return null;
  const isChosen = (c) => (c.chosen !== undefined ? c.chosen : c.strategy === strategy);
  const fitting = candidates.filter((c) => c.feasible && known(c.time_ms)).sort((a, b) => a.time_ms - b.time_ms);
  const name = (c) => [c.strategy, c.partition, c.remat && c.remat !== "none" ? `again: ${c.remat}` : null].filter(Boolean).join(", ");
  // Of a run on one rank nobody asks how long it takes, so only its memory is known.
  const rehearsed = (c) => known(c.time_ms) || known(c.peak_bytes);
  const rest = candidates.filter((c) => !rehearsed(c));
  const parts = (c) => { const rest = Math.max(0, c.time_ms - (c.compute_ms || 0) - (c.comm_ms || 0)); return { computing: c.compute_ms || 0, "waiting for messages": c.comm_ms || 0, "waiting for slower ranks": rest }; };
  return el("div", null, el("h3", null, `Candidates (${candidates.length})`),
    fitting.length ? bars(fitting.slice(0, 12).map((c) => ({ title: name(c), values: parts(c), chosen: isChosen(c) })),
      ["computing", "waiting for messages", "waiting for slower ranks"], duration) : null,
    candidateTable(candidates.filter(rehearsed), name, isChosen),
    rest.length ? el("details", null, el("summary", null, `Not looked at more closely (${rest.length})`),
      table([{ title: "strategy", value: name }, { title: "why not", value: (c) => c.reason || "does not fit", text: true }], rest, { label: "Candidates left out" })) : null);
}

function candidateTable(candidates, name, isChosen) {
  return table([
      { title: "strategy", value: name }, { title: "epoch", value: (c) => c.time_ms, show: duration, number: true },
      { title: "computing", value: (c) => c.compute_ms, show: duration, number: true },
      { title: "waiting for messages", value: (c) => c.comm_ms, show: duration, number: true },
      { title: "sent per epoch", value: (c) => c.bytes_sent, show: (x) => (known(x) ? bytes(x) : "–"), number: true },
      { title: "peak memory", value: (c) => c.peak_bytes, show: bytes, number: true },
      { title: "remark", value: (c) => (isChosen(c) ? "chosen" : c.feasible ? "" : c.reason || "does not fit"), text: true },
    ], candidates, { label: "Candidates", mark: (c) => (isChosen(c) ? "chosen" : c.feasible ? null : "dim") });
}

/// The page of a plan alone.
function planPage(plan, title) {
  const choice = plan.choice || {};
  const chosen = (plan.candidates || []).find((one) => one.chosen) || {};
  const cards = [["choice", choice.strategy || "nothing fits", choice.partition ? `partition: ${choice.partition}` : null],
    ["epoch", duration(choice.time_ms), known(plan.error) && known(choice.time_ms) ? `± ${(100 * plan.error).toFixed(0)} %` : null],
    ["whole run", known(plan.run_seconds) ? duration(1000 * plan.run_seconds) : "–"], ["sent per epoch", bytes(chosen.bytes_sent), "all ranks together"],
    ["peak memory of a rank", bytes(choice.peak_bytes), known(plan.memory) && plan.memory < 2 ** 60 ? `of ${bytes(plan.memory)}` : null]];
  const rows = [["graph", plan.graph], ["features", known(plan.features) ? `${whole(plan.features)}${plan.features_are ? `, ${plan.features_are}` : ""}` : null],
    ["classes", known(plan.classes) ? whole(plan.classes) : null], ["ranks", known(plan.ranks) ? whole(plan.ranks) : null], ["machine", plan.profile]];
  return [section("plan", "Plan", title, el("p", null, plan.why ? `Why ${choice.strategy || "nothing"}: ${plan.why}.` : null),
    el("div", { class: "figures", style: `--columns:${cards.length}` }, cards.map(figure)), el("div", { class: "halves" }, el("div", null, el("h3", null, "Planned for"), facts(rows, "What was planned for")), memoryOf(chosen)),
    candidatesOf(plan.candidates || [], choice.strategy)), scalingSection(plan.scaling || [])].filter(Boolean);
}

/// The memory of the choice by purpose.
function memoryOf(chosen) {
  const held = Object.entries(chosen.peak || {}).filter(([, x]) => x > 0).sort((a, b) => b[1] - a[1]);
  if (!held.length) return null;
  return el("div", null, el("h3", null, "Memory of the rank that needs most"), bars(held.map(([title, x]) => ({ title, values: { memory: x } })), ["memory"], bytes));
}

/// How the time of an epoch of a simulation changes with the number of ranks, for the fastest of each kind that fits.
function scalingSection(scaling) {
  const lines = scaling.filter((line) => Array.isArray(line.points) && line.points.length);
  if (!lines.length) return null;
  const hidden = new Set(kept.get("hidden-scaling", []));
  const place = el("div", { class: "chart", "data-chart": "scaling" });
  const ranks = [...new Set(lines.flatMap((line) => line.points.map((point) => point.ranks)))].sort((a, b) => a - b);
  const at = (line, p) => { const point = line.points.find((one) => one.ranks === p); return point ? point.seconds : null; };
  const dashes = [[], [7, 4], [2, 3]];
  const dash = (k) => dashes[Math.floor(k / COLOURS) % dashes.length];
  const cell = (seconds) => (known(seconds) ? duration(1000 * seconds) : "–");
  const part = section("scaling", "Scaling", "How long an epoch takes on more ranks, simulated: of each kind of strategy the fastest that fits in memory. Both axes are logarithmic; where nothing of a kind fits there is no point.",
    place, table([{ title: "ranks", value: (p) => p, number: true },
      ...lines.map((line) => ({ title: line.family, value: (p) => at(line, p), show: cell, number: true }))], ranks, { label: "Time of an epoch by ranks" }));
  let plot = null;
  part.start = () => {
    const style = getComputedStyle(document.documentElement);
    const [ink, rule] = ["--soft", "--grid"].map((name) => style.getPropertyValue(name).trim());
    const axis = { stroke: ink, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1 } };
    plot = new uPlot({ width: Math.max(220, place.clientWidth), height: 320, legend: { show: false }, cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false, distr: 3, log: 2, range: () => [ranks[0] * 0.9, Math.max(ranks[ranks.length - 1], 2) * 1.1] }, y: { distr: 3 } },
      axes: [{ ...axis, size: 30, splits: () => ranks, values: (u, ticks) => ticks.map((x) => (x === null ? "" : String(x))) },
        { ...axis, size: 72, values: (u, ticks) => ticks.map((x) => (x === null ? "" : duration(1000 * x))) }],
      series: [{ label: "ranks" }, ...lines.map((line, k) => ({ label: line.family, stroke: paint(k), width: 1.8, dash: dash(k), show: !hidden.has(line.family),
        points: { show: true, size: 6 }, value: (u, x) => cell(x) }))],
    }, [ranks, ...lines.map((line) => ranks.map((p) => at(line, p)))], el("div"));
    plot.root.setAttribute("role", "img");
    plot.root.setAttribute("aria-label", lines.map((line) => `${line.family}: ${line.points.map((point) => `${cell(point.seconds)} on ${point.ranks}`).join(", ")}`).join("; "));
    const groups = lines.map((line, k) => ({ title: line.family, colour: colour(k), dashed: dash(k).length > 0, shown: !hidden.has(line.family), k }));
    const where = el("span", { class: "where" });
    const show = (p) => { where.textContent = `on ${counted(p, "rank", "ranks")}`; for (const group of groups) group.value.textContent = cell(at(lines[group.k], p)); };
    place.replaceChildren(el("h3", null, "Time of an epoch", where), plot.root, keys(groups, (entry) => {
      plot.setSeries(entry.k + 1, { show: entry.shown });
      if (entry.shown) hidden.delete(entry.title); else hidden.add(entry.title);
      kept.set("hidden-scaling", [...hidden]);
    }));
    show(ranks[ranks.length - 1]);
    plot.hooks.setCursor = [(u) => show(ranks[u.cursor.left >= 0 ? u.cursor.idx ?? ranks.length - 1 : ranks.length - 1])];
  };
  part.resize = () => plot && plot.setSize({ width: place.clientWidth, height: 320 });
  return part;
}
