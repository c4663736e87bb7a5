// Losses, scores and what else changes from epoch to epoch.

const CURVES = [
  { id: "loss", title: () => "Loss", log: true, of: [["loss", "training"], ["valid_loss", "validation"]] },
  { id: "score", title: scoreTitle, log: false, of: [["train", "training"], ["valid", "validation"], ["test", "test"]] },
  { id: "lr", title: () => "Learning rate", log: true, small: true, of: [["lr", "learning rate"]] },
  { id: "gradient", title: () => "Gradient norm", log: true, small: true, of: [["gradient_norm", "gradient norm"]] },
  { id: "time", title: () => "Time of an epoch, ms", log: true, small: true, of: [["learn_ms", "learning"], ["evaluate_ms", "evaluation"]] },
];

/// The name of the metric where all runs have the same.
function scoreTitle(runs) {
  const names = [...new Set(runs.map((run) => `${run.metric || "score"}${run.unit ? `, ${run.unit.trim()}` : ""}`))];
  return names.length === 1 ? names[0][0].toUpperCase() + names[0].slice(1) : "Score";
}

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
  const controls = { log: kept.get("log", false), smoothing: kept.get("smoothing", 0) };
  const grid = el("div", { class: "charts" });
  let ruled = false;
  // What is done to one chart is done to all.
  const all = (source, change) => {
    if (ruled) return;
    ruled = true;
    charts.filter((chart) => chart.plot !== source).forEach(change);
    ruled = false;
  };
  const last = Math.max(2, ...runs.flatMap((run) => run.seeds.map((seed) => seed.epochs)));
  const follow = (source, range) => {
    if (!ruled) kept.set("zoom", range);
    all(source, (chart) => chart.plot.setScale("x", range ? { min: range[0], max: range[1] } : { min: 1, max: last }));
  };
  const point = (source, epoch) => all(source, (chart) => chart.point(epoch));
  const built = () => {
    grid.replaceChildren();
    charts.length = 0;
    for (const curve of CURVES) {
      const series = seriesOf(runs, curve, controls.smoothing);
      if (series.length) charts.push(curveChart(grid, { ...curve, title: curve.title(runs) }, series, { ...controls, best: bestOf(runs), range: kept.get("zoom", null), last, follow, point }));
    }
  };
  const logBox = el("input", { type: "checkbox", id: "log", checked: controls.log, onchange: () => {
    controls.log = logBox.checked; kept.set("log", controls.log); built();
  } });
  const slider = el("input", { type: "range", id: "smoothing", min: 0, max: 0.99, step: 0.01, value: controls.smoothing, oninput: () => {
    controls.smoothing = Number(slider.value); kept.set("smoothing", controls.smoothing); built();
  } });
  const seeds = runs.some((run) => run.seeds.length > 1) ? " Thin lines are seeds, thick ones their mean; beside the keys are mean and deviation." : "";
  const best = bestOf(runs).length ? " The dashed upright line is the epoch with the best validation score." : "";
  const part = section("curves", "Curves",
    `Drag over a chart to zoom, point at it to read values; all charts follow. With the keyboard, arrows point, + and − zoom. A key hides its lines.${best}${seeds}`,
    el("div", { class: "controls" }, el("label", { for: "log" }, logBox, "log scale"),
      el("label", { for: "smoothing" }, "smoothing", slider),
      el("button", { type: "button", id: "reset-zoom", onclick: () => { kept.set("zoom", null); follow(null, null); } }, "Show all epochs")), grid);
  // A chart needs the width of its place.
  part.start = built;
  part.resize = () => charts.filter((chart) => chart.plot.width !== chart.place.clientWidth)
    .forEach((chart) => chart.plot.setSize({ width: chart.place.clientWidth, height: chart.plot.height }));
  return part;
}

/// The best epochs of one run, as far as they can be told apart.
function bestOf(runs) {
  if (runs.length > 1) return [];
  const all = [...new Set(runs[0].seeds.map((seed) => seed.best && seed.best.epoch).filter(known))];
  return all.length <= 3 ? all : [];
}

/// The lines of one chart. Of one run, colours tell what is drawn; of several, which run. Each of several seeds has a
/// thin line beside that of their mean.
function seriesOf(runs, curve, strength) {
  const all = [];
  // Of several runs the score of training is left out: it says least of them.
  const drawn = curve.of.filter(([key]) => runs.length < 2 || curve.id !== "score" || key !== "train");
  runs.forEach((run, r) => drawn.forEach(([key, title], k) => {
    const several = runs.length > 1;
    const group = { group: several ? `${run.name}, ${title}` : title, ink: several ? r : k, dash: several && k > 0 ? [5, 3] : [] };
    const lines = run.seeds.map((seed) => {
      const values = seed.metrics[key] || (seed.times || {})[key];
      return values && values.some(known) ? { epochs: seed.metrics.epoch || values.map((_, place) => place + 1), values } : null;
    }).filter(Boolean);
    for (const line of lines) all.push({ ...group, ...line, drawn: smooth(line.values, strength), width: lines.length > 1 ? 0.8 : 1.7, alpha: lines.length > 1 ? 0.4 : 1, isSeed: true });
    if (lines.length > 1) { const middle = meanLine(lines); all.push({ ...group, ...middle, drawn: smooth(middle.values, strength), width: 2, alpha: 1, isSeed: false }); }
  }));
  return all;
}

/// The mean over seeds of those epochs that all of them have.
function meanLine(lines) {
  const maps = lines.map((line) => new Map(line.epochs.map((epoch, k) => [epoch, line.values[k]])));
  const epochs = lines[0].epochs.filter((epoch) => maps.every((map) => known(map.get(epoch))));
  return { epochs, values: epochs.map((epoch) => mean(maps.map((map) => map.get(epoch)))) };
}

/// Values of all lines at the same epochs, with gaps where a line has none.
function aligned(epochs, line, values) {
  if (line.epochs.length === epochs.length) return epochs.map((_, k) => (known(values[k]) ? values[k] : null));
  const at = new Map(line.epochs.map((epoch, k) => [epoch, values[k]]));
  return epochs.map((epoch) => { const x = at.get(epoch); return known(x) ? x : null; });
}

function curveChart(grid, curve, series, options) {
  const said = el("span", { class: "unseen", "aria-live": "polite" });
  const where = el("span", { class: "where" });
  const place = el("div", { class: curve.small ? "chart small" : "chart", "data-chart": curve.id }, el("h3", null, curve.title, where), said);
  grid.append(place);
  const lists = [...new Set(series.map((one) => one.epochs))];
  const epochs = lists.length === 1 ? lists[0] : [...new Set(lists.flat())].sort((a, b) => a - b);
  const values = series.map((one) => aligned(epochs, one, one.values));
  const isLog = options.log && curve.log;
  const drawn = series.map((one) => aligned(epochs, one, one.drawn).map((x) => (isLog && x <= 0 ? null : x)));
  const hidden = new Set(kept.get(`hidden-${curve.id}`, []));
  const height = curve.small ? 190 : 260;
  const plot = new uPlot(chartOptions({ epochs, series, drawn, hidden, isLog, height, width: Math.max(220, place.clientWidth) }, options), [epochs, ...drawn], place);
  const groups = [...new Map(series.map((one) => [one.group, one])).values()].map((one) =>
    ({ title: one.group, colour: colour(one.ink), dashed: one.dash.length > 0, shown: !hidden.has(one.group), group: one.group,
      // At the places of its seeds, or of its only line.
      places: series.flatMap((other, k) => (other.group === one.group && other.isSeed ? [k] : [])) }));
  place.append(keys(groups, (entry) => {
    series.forEach((one, k) => { if (one.group === entry.group) plot.setSeries(k + 1, { show: entry.shown }); });
    if (entry.shown) hidden.delete(entry.group); else hidden.add(entry.group);
    kept.set(`hidden-${curve.id}`, [...hidden]);
  }));
  const end = epochs.length - 1;
  const textOf = (group, k) => {
    const all = group.places.map((line) => values[line][k]).filter(known);
    return !all.length ? "–" : all.length > 1 && deviation(all) > 0 ? `${number(mean(all), 4)} ± ${number(deviation(all), 2)}` : number(all[0], 5);
  };
  // Where nobody points, each run stands at its own last epoch.
  const last = (group) => Math.max(0, ...group.places.map((line) => values[line].findLastIndex(known)));
  const show = (k) => {
    where.textContent = k !== null ? `epoch ${whole(epochs[k])}` : lists.length > 1 ? "last epoch of each" : `last epoch: ${whole(epochs[end])}`;
    for (const group of groups) group.value.textContent = textOf(group, k ?? last(group));
  };
  show(null);
  plot.root.setAttribute("role", "img");
  plot.root.setAttribute("aria-label", `${curve.title}: ${groups.slice(0, 8).map((group) => `${group.title} ends at ${textOf(group, last(group))}`).join("; ")}. Arrow keys point at epochs.`);
  if (options.range) plot.setScale("x", { min: options.range[0], max: options.range[1] });
  plot.hooks.setCursor = [(u) => {
    const k = u.cursor.left >= 0 ? u.cursor.idx ?? null : null;
    show(k);
    options.point(u, k === null ? null : epochs[k]);
  }];
  const point = (epoch) => {
    plot.setCursor(epoch === null ? { left: -10, top: -10 } : { left: Math.max(0, plot.valToPos(epoch, "x")), top: 0 }, false);
    show(epoch === null ? null : nearest(epochs, epoch));
  };
  withKeyboard(plot, epochs, options, (k) => { said.textContent = `epoch ${epochs[k]}: ${groups.map((group) => `${group.title} ${textOf(group, k)}`).join(", ")}`; });
  return { plot, place, point };
}

/// The place of the number that is closest.
function nearest(sorted, x) {
  let [low, high] = [0, sorted.length - 1];
  while (low < high) { const middle = (low + high) >> 1; if (sorted[middle] < x) low = middle + 1; else high = middle; }
  return low > 0 && x - sorted[low - 1] < sorted[low] - x ? low - 1 : low;
}

/// Arrows point at epochs, plus and minus zoom around them, Home shows all.
function withKeyboard(plot, epochs, options, say) {
  plot.root.tabIndex = 0;
  let at = null;
  const go = (k) => {
    at = Math.max(0, Math.min(epochs.length - 1, k));
    plot.setCursor({ left: Math.max(0, plot.valToPos(epochs[at], "x")), top: 0 });
    say(at);
  };
  const zoom = (factor) => {
    const { min, max } = plot.scales.x, middle = at === null ? (min + max) / 2 : epochs[at];
    const half = Math.max(1, ((max - min) * factor) / 2);
    plot.setScale("x", { min: Math.max(1, middle - half), max: Math.min(options.last, middle + half) });
  };
  plot.root.addEventListener("keydown", (event) => {
    const { min, max } = plot.scales.x, step = Math.max(1, Math.round((max - min) / 100));
    const from = at ?? nearest(epochs, (min + max) / 2);
    const does = { ArrowLeft: () => go(from - step), ArrowRight: () => go(from + step), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
      Home: () => plot.setScale("x", { min: 1, max: options.last }) }[event.key];
    if (does) { event.preventDefault(); does(); }
  });
  plot.root.addEventListener("blur", () => { at = null; plot.setCursor({ left: -10, top: -10 }); });
}

function chartOptions(chart, options) {
  const { epochs, series, drawn, hidden, isLog } = chart;
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--soft").trim(), rule = style.getPropertyValue("--grid").trim();
  const axis = { stroke: ink, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1 }, font: "12px system-ui, sans-serif" };
  // Where only some epochs were evaluated, points say which.
  const sparse = drawn.map((column) => {
    const [first, end] = [column.findIndex(known), column.findLastIndex(known)];
    return column.filter(known).length < (end - first + 1) / 2;
  });
  return {
    width: chart.width, height: chart.height, legend: { show: false },
    cursor: { drag: { x: true, y: false, setScale: true }, points: { size: 6 } },
    scales: { x: { time: false, range: (u, min, max) => [min ?? 1, max ?? options.last] }, y: { distr: isLog ? 3 : 1 } },
    axes: [{ ...axis, size: 30, values: (u, ticks) => ticks.map((x) => (Number.isInteger(x) ? String(x) : "")) },
      { ...axis, size: 58, values: (u, ticks) => ticks.map((x) => (x === null ? "" : number(x, 3))) }],
    series: [{ label: "epoch" }, ...series.map((one, k) => ({
      label: one.group, stroke: paint(one.ink), width: one.width, alpha: one.alpha, dash: one.dash, show: !hidden.has(one.group), spanGaps: true,
      points: { show: one.isSeed && (sparse[k] || epochs.length < 3) } }))],
    hooks: {
      setScale: [(u, key) => {
        if (key !== "x") return;
        const { min, max } = u.scales.x;
        options.follow(u, min <= epochs[0] && max >= options.last ? null : [min, max]);
      }],
      draw: [(u) => drawBest(u, options.best, ink)],
    },
  };
}

/// Upright lines at the best epochs.
function drawBest(plot, best, ink) {
  const { ctx: pen, bbox: box } = plot;
  pen.save();
  pen.strokeStyle = ink;
  pen.lineWidth = devicePixelRatio;
  pen.setLineDash([2 * devicePixelRatio, 4 * devicePixelRatio]);
  for (const epoch of best) {
    const x = plot.valToPos(epoch, "x", true);
    if (x < box.left || x > box.left + box.width) continue;
    pen.beginPath();
    pen.moveTo(x, box.top);
    pen.lineTo(x, box.top + box.height);
    pen.stroke();
  }
  pen.restore();
}
