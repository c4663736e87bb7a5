// Losses, scores and what else changes from epoch to epoch.

const CURVES = [
  { id: "loss", title: "Loss", log: true, of: [["loss", "training"], ["valid_loss", "validation"]] },
  { id: "score", title: "Score", log: false, of: [["train", "training"], ["valid", "validation"], ["test", "test"]] },
  { id: "lr", title: "Learning rate", log: true, of: [["lr", "learning rate"]] },
  { id: "gradient", title: "Gradient norm", log: true, of: [["gradient_norm", "gradient norm"]] },
  { id: "time", title: "Time of an epoch, ms", log: true, of: [["learn_ms", "training"], ["evaluate_ms", "evaluation"]] },
];

/// A running mean that gives less weight to what is longer ago; gaps stay gaps.
function smooth(values, strength) {
  if (!strength) return values;
  let [state, weight] = [0, 0];
  return values.map((x) => {
    if (!known(x)) return null;
    state = state * strength + x * (1 - strength);
    weight = weight * strength + (1 - strength);
    return state / weight;
  });
}

function curvesSection(runs) {
  const charts = [];
  const zoom = kept.get("zoom", null);
  const controls = { log: kept.get("log", false), smoothing: kept.get("smoothing", 0) };
  const grid = el("div", { class: "charts" });
  let ruled = false;
  const follow = (source, range) => {
    if (ruled) return;
    ruled = true;
    kept.set("zoom", range);
    charts.forEach((chart) => { if (chart.plot !== source) chart.plot.setScale("x", range ? { min: range[0], max: range[1] } : fullRange()); });
    ruled = false;
  };
  const last = Math.max(2, ...runs.flatMap((run) => run.seeds.map((seed) => seed.epochs)));
  const fullRange = () => ({ min: 1, max: last });
  const built = () => {
    grid.replaceChildren();
    charts.length = 0;
    for (const curve of CURVES) {
      const series = seriesOf(runs, curve, controls.smoothing);
      if (series.length) charts.push(curveChart(grid, curve, series, { ...controls, range: kept.get("zoom", zoom), last, follow }));
    }
    // Only now the grid knows how many columns it has.
    part.resize();
  };
  const logBox = el("input", { type: "checkbox", id: "log", checked: controls.log, onchange: () => {
    controls.log = logBox.checked; kept.set("log", controls.log); built();
  } });
  const slider = el("input", { type: "range", id: "smoothing", min: 0, max: 0.99, step: 0.01, value: controls.smoothing, oninput: () => {
    controls.smoothing = Number(slider.value); kept.set("smoothing", controls.smoothing); built();
  } });
  const part = section("curves", "Curves",
    "Drag over a chart to zoom; all charts follow. Click a key to hide a series. Of several seeds each has a line.",
    el("div", { class: "controls" }, el("label", { for: "log" }, logBox, " log scale"),
      el("label", { for: "smoothing" }, "smoothing ", slider),
      el("button", { type: "button", id: "reset-zoom", onclick: () => { kept.set("zoom", null); follow(null, null); } }, "Show all epochs")), grid);
  // A chart needs the width of its place.
  part.start = built;
  part.resize = () => charts.forEach((chart) => chart.plot.setSize({ width: chart.place.clientWidth, height: 240 }));
  return part;
}

/// The lines of one chart. Of one run, colours tell what is drawn; of several, which run.
function seriesOf(runs, curve, strength) {
  const all = [];
  runs.forEach((run, r) => curve.of.forEach(([key, title], k) => {
    if (runs.length > 1 && curve.id === "score" && key === "train") return;
    run.seeds.forEach((seed, s) => {
      const values = seed.metrics[key] || seed.times[key];
      if (!values || !values.some(known)) return;
      const name = [runs.length > 1 ? run.name : null, title, run.seeds.length > 1 ? `seed ${seed.seed}` : null];
      all.push({ title: name.filter(Boolean).join(", "), group: runs.length > 1 ? `${run.name}, ${title}` : title,
        epochs: seed.metrics.epoch || values.map((_, place) => place + 1), values: smooth(values, strength),
        colour: colour(runs.length > 1 ? r : k), dash: runs.length > 1 && k > 0 ? [5 - k, 3] : [], thin: run.seeds.length > 3, s });
    });
  }));
  return all;
}

function curveChart(grid, curve, series, options) {
  const place = el("div", { class: "chart", "data-chart": curve.id }, el("h3", null, curve.title));
  grid.append(place);
  const epochs = [...new Set(series.flatMap((one) => one.epochs))].sort((a, b) => a - b);
  const at = new Map(epochs.map((epoch, k) => [epoch, k]));
  const aligned = series.map((one) => {
    const column = new Array(epochs.length).fill(null);
    one.epochs.forEach((epoch, k) => { const x = one.values[k]; column[at.get(epoch)] = known(x) && !(options.log && curve.log && x <= 0) ? x : null; });
    return column;
  });
  const hidden = new Set(kept.get(`hidden-${curve.id}`, []));
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--soft").trim(), rule = style.getPropertyValue("--grid").trim();
  const axis = { stroke: ink, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1 } };
  // Where only some epochs were evaluated, points say which.
  const sparse = aligned.map((column) => {
    const [first, end] = [column.findIndex(known), column.findLastIndex(known)];
    return column.filter(known).length < (end - first + 1) / 2;
  });
  const plot = new uPlot({
    width: Math.max(220, place.clientWidth), height: 240, legend: { live: true, show: series.length <= 6 },
    cursor: { drag: { x: true, y: false, setScale: true }, focus: { prox: 24 } },
    scales: { x: { time: false, range: (u, min, max) => [min ?? 1, max ?? options.last] }, y: { distr: options.log && curve.log ? 3 : 1 } },
    axes: [{ ...axis, label: undefined, values: (u, ticks) => ticks.map((x) => (Number.isInteger(x) ? String(x) : "")) },
      { ...axis, size: 62, values: (u, ticks) => ticks.map((x) => (x === null ? "" : number(x, 3))) }],
    series: [{ label: "epoch", value: (u, x) => (x === null ? "–" : String(x)) }, ...series.map((one, k) => ({
      label: one.title, stroke: one.colour, width: one.thin ? 1 : 1.6, dash: one.dash, show: !hidden.has(one.group), spanGaps: true,
      points: { show: sparse[k] || epochs.length < 3 }, value: (u, x) => number(x) }))],
    hooks: { setScale: [(u, key) => {
      if (key !== "x") return;
      const { min, max } = u.scales.x;
      const full = min <= epochs[0] && max >= options.last;
      options.follow(u, full ? null : [min, max]);
    }] },
  }, [epochs, ...aligned], place);
  plot.root.setAttribute("role", "img");
  plot.root.setAttribute("aria-label", `${curve.title}: ${series.slice(0, 8).map((one) => `${one.title} ends at ${number(one.values.findLast(known) ?? null)}`).join("; ")}`);
  const groups = [...new Map(series.map((one) => [one.group, one])).values()];
  place.append(keys(groups.map((one) => ({ title: one.group, colour: one.colour, shown: !hidden.has(one.group), group: one.group })), (entry) => {
    series.forEach((one, k) => { if (one.group === entry.group) plot.setSeries(k + 1, { show: entry.shown }); });
    if (entry.shown) hidden.delete(entry.group); else hidden.add(entry.group);
    kept.set(`hidden-${curve.id}`, [...hidden]);
  }));
  if (options.range) plot.setScale("x", { min: options.range[0], max: options.range[1] });
  return { plot, place };
}
