// How the work was spread, what else was looked at, and whether the prediction held.

function planSection(run, prefix) {
  const plan = run.plan;
  if (!plan) return null;
  const { predicted, measured } = plan;
  const rows = [];
  if (predicted || measured) {
    const error = (a, b) => (known(a) && known(b) && b > 0 ? `${((100 * (a - b)) / b).toFixed(1)} %` : "–");
    rows.push(["epoch", duration(predicted && predicted.epoch_ms), duration(measured && measured.epoch_ms),
      error(predicted && predicted.epoch_ms, measured && measured.epoch_ms), known(predicted && predicted.error) ? `± ${(100 * predicted.error).toFixed(0)} %` : "–"]);
    rows.push(["peak memory of a rank", bytes(predicted && predicted.peak_bytes), bytes(measured && measured.peak_bytes),
      error(predicted && predicted.peak_bytes, measured && measured.peak_bytes), "–"]);
  }
  const facts = [["strategy", plan.strategy], ["ranks", plan.ranks], ["computed again in backward", plan.remat],
    ["partition", plan.partition && `${plan.partition.method}, ${plan.partition.parts} parts`]].filter(([, text]) => text);
  return section(`${prefix}plan`, "Plan", ofSeed(run, plan.why),
    el("table", null, el("tbody", null, facts.map(([name, text]) => el("tr", null, el("th", { scope: "row" }, name), el("td", null, text))))),
    rows.length ? el("h3", null, "Predicted against measured") : null,
    rows.length ? table(["", "predicted", "measured", "difference", "stated error"].map((title, k) => ({ title: title || "what", value: (row) => row[k], number: k > 0 })), rows,
      { label: "Predicted against measured" }) : null,
    candidatesOf(plan.candidates || [], plan.strategy));
}

/// Every way that the planner looked at: a picture of those that fit, a table of all.
function candidatesOf(candidates, strategy) {
  if (!candidates.length) return null;
  const isChosen = (c) => (c.chosen !== undefined ? c.chosen : c.strategy === strategy);
  const fitting = candidates.filter((c) => c.feasible && known(c.time_ms)).sort((a, b) => a.time_ms - b.time_ms);
  const name = (c) => [c.strategy, c.partition, c.remat && c.remat !== "none" ? `again: ${c.remat}` : null].filter(Boolean).join(", ");
  const rest = candidates.filter((c) => !known(c.time_ms));
  const parts = (c) => { const rest = Math.max(0, c.time_ms - (c.compute_ms || 0) - (c.comm_ms || 0)); return { computing: c.compute_ms || 0, "waiting for messages": c.comm_ms || 0, "waiting for slower ranks": rest }; };
  return el("div", null, el("h3", null, `Candidates (${candidates.length})`),
    fitting.length ? bars(fitting.slice(0, 12).map((c) => ({ title: name(c), values: parts(c), chosen: isChosen(c) })),
      ["computing", "waiting for messages", "waiting for slower ranks"], duration) : null,
    candidateTable(candidates.filter((c) => known(c.time_ms)), name, isChosen),
    rest.length ? el("details", null, el("summary", null, `Not rehearsed (${rest.length})`), candidateTable(rest, name, isChosen)) : null);
}

function candidateTable(candidates, name, isChosen) {
  return table([
      { title: "strategy", value: name }, { title: "epoch", value: (c) => c.time_ms, show: duration, number: true },
      { title: "computing", value: (c) => c.compute_ms, show: duration, number: true },
      { title: "messages", value: (c) => c.comm_ms, show: duration, number: true },
      { title: "sent per epoch", value: (c) => c.bytes_sent, show: (x) => (known(x) ? bytes(x) : "–"), number: true },
      { title: "peak memory", value: (c) => c.peak_bytes, show: bytes, number: true },
      { title: "remark", value: (c) => (isChosen(c) ? "chosen" : c.feasible ? "" : c.reason || "does not fit"), text: true },
    ], candidates, { label: "Candidates", mark: (c) => (isChosen(c) ? "chosen" : c.feasible ? null : "dim") });
}

/// The page of a plan alone.
function planPage(plan) {
  return [section("plan", "Plan", plan.why, el("div", { class: "figures" }, [
    ["choice", plan.choice ? plan.choice.strategy : "nothing fits"], ["epoch", duration(plan.choice && plan.choice.time_ms)],
    ["peak memory of a rank", bytes(plan.choice && plan.choice.peak_bytes)]].map(([name, text]) =>
    el("div", { class: "figure" }, el("b", null, text), el("span", null, name)))),
  candidatesOf(plan.candidates || [], plan.choice && plan.choice.strategy)), scalingSection(plan.scaling || [])].filter(Boolean);
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
  const dash = (k) => dashes[Math.floor(k / COLOURS.length) % dashes.length];
  const cell = (seconds) => (known(seconds) ? duration(1000 * seconds) : "–");
  const part = section("scaling", "Scaling", "Time of an epoch by the number of ranks, simulated: of each kind the fastest that fits, both axes logarithmic. Where nothing of a kind fits there is no point.",
    place, table([{ title: "ranks", value: (p) => p, number: true },
      ...lines.map((line) => ({ title: line.family, value: (p) => at(line, p), show: cell, number: true }))], ranks, { label: "Time of an epoch by ranks" }));
  let plot = null;
  part.start = () => {
    const style = getComputedStyle(document.documentElement);
    const [ink, rule] = ["--soft", "--grid"].map((name) => style.getPropertyValue(name).trim());
    const axis = { stroke: ink, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1 } };
    plot = new uPlot({ width: Math.max(220, place.clientWidth), height: 320, legend: { live: true }, cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false, distr: 3, log: 2, range: () => [ranks[0] * 0.9, Math.max(ranks[ranks.length - 1], 2) * 1.1] }, y: { distr: 3 } },
      axes: [{ ...axis, splits: () => ranks, values: (u, ticks) => ticks.map((x) => (x === null ? "" : String(x))) },
        { ...axis, size: 72, values: (u, ticks) => ticks.map((x) => (x === null ? "" : duration(1000 * x))) }],
      series: [{ label: "ranks" }, ...lines.map((line, k) => ({ label: line.family, stroke: colour(k), width: 1.8, dash: dash(k), show: !hidden.has(line.family),
        points: { show: true, size: 6 }, value: (u, x) => cell(x) }))],
    }, [ranks, ...lines.map((line) => ranks.map((p) => at(line, p)))], el("div"));
    plot.root.setAttribute("role", "img");
    plot.root.setAttribute("aria-label", lines.map((line) => `${line.family}: ${line.points.map((point) => `${cell(point.seconds)} on ${point.ranks}`).join(", ")}`).join("; "));
    place.replaceChildren(plot.root, keys(lines.map((line, k) => ({ title: line.family, colour: colour(k), shown: !hidden.has(line.family), k })), (entry) => {
      plot.setSeries(entry.k + 1, { show: entry.shown });
      if (entry.shown) hidden.delete(entry.title); else hidden.add(entry.title);
      kept.set("hidden-scaling", [...hidden]);
    }));
  };
  part.resize = () => plot && plot.setSize({ width: place.clientWidth, height: 320 });
  return part;
}
