// How good predictions are, where: class by class, label by label, value by value, link by link, and what is hard.

const ONE = { nodes: "node", graphs: "graph", links: "link" };
/// How many of the items that are tested.
const testedOf = (found, n) => `${whole(n)} test ${n === 1 ? ONE[found.items] : found.items}`;

function classesSection(run, prefix) {
  const found = run.data && run.data.classes;
  if (!found) return null;
  const title = found.metrics ? "Links" : found.targets ? "Predictions" : found.labels ? "Labels" : "Classes";
  const parts = [
    found.confusion ? el("div", { class: found.confusion.length <= 12 ? "halves" : null }, confusionOf(found), recallOf(found)) : null,
    found.labels ? labelsOf(found) : null, found.targets ? targetsOf(found) : null, found.metrics ? linksOf(found) : null,
    el("div", { class: "halves" }, (Array.isArray(found.groups) ? found.groups : []).map((group) => groupOf(found, group))),
  ];
  const against = found.metrics ? ` and ${counted(found.others, "pair that is", "pairs that are")} none${found.drawn ? ", drawn at random" : ""}` : "";
  const of = found.tested ? `Of ${testedOf(found, found.tested)}${against}, by the model of the best epoch.` : null;
  return section(`${prefix}classes`, titled(run, title), run.seeds.length > 1 ? `Of seed ${run.seeds[0].seed}, whichever is chosen above. ${of || ""}` : of, ...parts);
}

const recallText = ({ items }) => `Recall: of the ${items} that have it, how many were found. Precision: of the ${items} said to have it, how many do.`;

const namesOf = (found, count) => [...Array(count).keys()].map((k) => (found.names || [])[k] || String(k));

function confusionOf(found) {
  const heads = namesOf(found, found.confusion.length);
  return el("div", null, el("h3", null, `Test ${found.items} by true class (row) and predicted class (column)`),
    heatMap(found.confusion, (x) => whole(x), (r, c, x) => (r === c ? `${heads[r]}, found: ${whole(x)}` : `${heads[r]} taken for ${heads[c]}: ${whole(x)}`), heads, "Confusion matrix"));
}

function recallOf(found) {
  const heads = namesOf(found, found.confusion.length);
  const rows = found.confusion.map((row, k) => {
    const hit = row[k], said = sum(found.confusion.map((other) => other[k])), there = sum(row);
    return { name: heads[k], there, recall: there ? hit / there : null, precision: said ? hit / said : null };
  });
  return el("div", null, el("h3", null, "Class by class"), el("p", { class: "lead" }, recallText(found)), table([{ title: "class", value: (row) => row.name, text: true },
    { title: `test ${found.items}`, value: (row) => row.there, show: whole, number: true },
    { title: "recall", value: (row) => row.recall, show: percent, number: true, bar: (row) => row.recall },
    { title: "precision", value: (row) => row.precision, show: percent, number: true, bar: (row) => row.precision }], rows, { label: "Classes" }));
}

/// How links are told from other pairs: every metric, and what scores both have.
function linksOf(found) {
  return el("div", { class: "halves" }, el("div", null, el("h3", null, "Scores of the test part"),
    table([{ title: "metric", value: (row) => row.name }, { title: "score", value: (row) => row.score, show: (x, row) => (known(x) ? `${x.toFixed(2)}${row.unit}` : "–"), number: true },
      // Where there are fewer other pairs than that, every link counts as found.
      { title: "remark", value: (row) => (Number(row.name.split("@")[1]) > found.others ? "there are fewer other pairs" : ""), text: true }],
      found.metrics, { label: "Metrics of links" })), histogramOf(found));
}

/// Shares of links, upwards, and of other pairs, downwards, by their score.
function histogramOf({ histogram, tested, others }) {
  if (!histogram) return null;
  const [w, h, b] = [460, 240, 40], middle = (h - b) / 2;
  const kinds = [["links", histogram.links, tested], ["pairs that are none", histogram.others, others]];
  const most = Math.max(...kinds.flatMap(([, bins, all]) => bins.map((x) => x / (all || 1))), 1e-300);
  const span = histogram.high - histogram.low, px = (x) => 8 + ((x - histogram.low) / span) * (w - 16);
  const wide = (w - 16) / histogram.links.length, tall = (x, all) => ((x / (all || 1)) / most) * (middle - 6);
  const picture = svg("svg", { viewBox: `0 0 ${w} ${h}`, width: "100%", role: "img",
    "aria-label": kinds.map(([name, bins]) => `${name}: ${bins.map((x, k) => [x, k]).filter(([x]) => x > 0).map(([x, k]) => `${x} from ${number(histogram.low + (k * span) / bins.length, 3)}`).join(", ")}`).join("; ") });
  for (const x of ticksOf(histogram.low, histogram.high, 6)) {
    picture.append(svg("line", { x1: px(x), x2: px(x), y1: 4, y2: h - b, class: "rule" }), svg("text", { x: px(x), y: h - b + 18, "text-anchor": "middle", class: "faint" }, number(x, 3)));
  }
  kinds.forEach(([name, bins, all], kind) => bins.forEach((x, k) => {
    const y = tall(x, all), from = histogram.low + (k * span) / bins.length;
    if (x) picture.append(svg("rect", { x: (8 + k * wide).toFixed(2), width: Math.max(1, wide - 1).toFixed(2), y: (kind ? middle : middle - y).toFixed(2), height: Math.max(0.8, y).toFixed(2),
      style: `fill:${colour(kind)}`, "data-kind": kind, "data-count": x, ...tipped(`${name} with scores from ${number(from, 3)} to ${number(from + span / bins.length, 3)}: ${whole(x)}, ${percent(x / all)}`) }));
  }));
  picture.append(svg("line", { x1: 8, x2: w - 8, y1: middle, y2: middle, class: "equal" }), svg("text", { x: w / 2, y: h - 4, "text-anchor": "middle", class: "faint" }, "score of a pair"));
  return el("div", null, el("h3", null, "Scores of links (upwards) and of other pairs (downwards)"), legend(kinds.map(([name]) => name)), picture);
}

/// Of items with several labels each.
function labelsOf(found) {
  return el("div", null, el("h3", null, "Label by label"), el("p", { class: "lead" }, recallText(found)), table([{ title: "label", value: (row) => row.name, text: true },
    { title: `test ${found.items} with it`, value: (row) => row.there, show: whole, number: true },
    { title: "predicted for", value: (row) => row.said, show: whole, number: true },
    { title: "recall", value: (row) => (row.there ? row.hit / row.there : null), show: percent, number: true, bar: (row) => row.hit / row.there },
    { title: "precision", value: (row) => (row.said ? row.hit / row.said : null), show: percent, number: true, bar: (row) => row.hit / row.said }],
  found.labels, { label: "Labels" }));
}

/// Of items with numbers to predict: how far off, and a picture of each target.
function targetsOf(found) {
  const { targets } = found;
  const column = (title, key) => ({ title, value: (row) => row[key], show: (x) => number(x), number: true });
  return el("div", null, table([{ title: "target", value: (row) => row.name, text: true }, { title: `test ${found.items}`, value: (row) => row.known, show: whole, number: true },
    column("mean", "mean"), column("mean absolute error", "mae"), column("root mean square error", "rmse"), column("mean error", "bias")],
  targets, { label: "Targets" }),
  el("div", { class: "charts spaced" }, targets.slice(0, 6).filter((one) => one.points.length).map((one) => cloud(found, one))));
}

/// Predicted against true values; on the line both are equal.
function cloud(found, target) {
  const [w, h, l, b] = [460, 300, 56, 40];
  const all = target.points.flat();
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const room = (high - low) * 0.04 || 1;
  const share = (x) => (x - low + room) / (high - low + 2 * room);
  const px = (x) => l + share(x) * (w - l - 12), py = (y) => h - b - share(y) * (h - b - 12);
  const picture = svg("svg", { viewBox: `0 0 ${w} ${h}`, width: "100%", role: "img",
    "aria-label": `${target.name}: predicted against true values of ${testedOf(found, target.points.length)}, mean absolute error ${number(target.mae)}` });
  for (const x of ticksOf(low, high, 5)) {
    picture.append(svg("line", { x1: l, x2: w - 12, y1: py(x), y2: py(x), class: "rule" }), svg("text", { x: l - 6, y: py(x) + 4, "text-anchor": "end", class: "faint" }, number(x, 3)),
      svg("text", { x: px(x), y: h - b + 18, "text-anchor": "middle", class: "faint" }, number(x, 3)));
  }
  picture.append(svg("line", { x1: px(low), y1: py(low), x2: px(high), y2: py(high), class: "equal" }),
    svg("text", { x: (l + w) / 2, y: h - 4, "text-anchor": "middle", class: "faint" }, "true value"));
  for (const [x, y] of target.points) picture.append(svg("circle", { cx: px(x).toFixed(1), cy: py(y).toFixed(1), r: 2.2, style: `fill:${colour(0)}`, "fill-opacity": 0.45 }));
  const shown = target.points.length < target.known ? `, ${whole(target.points.length)} of ${testedOf(found, target.known)}` : "";
  return el("div", { class: "chart" }, el("h3", null, `${target.name}: predicted (upwards) against true${shown}`), picture);
}

/// Bars of a score over groups of items, with how many each has.
function groupOf(found, group) {
  const rows = (Array.isArray(group.rows) ? group.rows : []).filter((row) => row.count > 0 && known(row.score));
  if (!rows.length) return null;
  const show = (x) => (group.unit === "%" ? `${x.toFixed(1)} %` : number(x, 3));
  return el("div", null, el("h3", null, group.title),
    bars(rows.map((row) => ({ title: `${row.name} (${counted(row.count, ONE[found.items], found.items)})`, values: { score: row.score } })), ["score"], show, group.unit === "%" ? 100 : null));
}
