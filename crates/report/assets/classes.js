// How good predictions are, where: class by class, label by label, value by value, and which nodes are hard.

function classesSection(run, prefix) {
  const found = run.data && run.data.classes;
  if (!found) return null;
  const title = found.targets ? "Predictions" : found.labels ? "Labels" : "Classes";
  const parts = [
    found.confusion ? el("div", { class: found.confusion.length <= 12 ? "halves" : null }, confusionOf(found), recallOf(found)) : null,
    found.labels ? labelsOf(found.labels) : null, found.targets ? targetsOf(found.targets) : null,
    el("div", { class: "halves" }, groupsOf(found, run, "by_degree", "Test score by number of neighbours"),
      groupsOf(found, run, "by_homophily", "Test score by share of neighbours of the same class")),
  ];
  const of = found.nodes ? `Of ${counted(found.nodes, "test node", "test nodes")}, by the model of the best epoch.` : null;
  return section(`${prefix}classes`, titled(run, title), run.seeds.length > 1 ? `Of seed ${run.seeds[0].seed}, whichever is chosen above. ${of || ""}` : of, ...parts);
}

const RECALL = "Recall: of the nodes that have it, how many were found. Precision: of the nodes said to have it, how many do.";

const namesOf = (found, count) => [...Array(count).keys()].map((k) => (found.names || [])[k] || String(k));

function confusionOf(found) {
  const heads = namesOf(found, found.confusion.length);
  return el("div", null, el("h3", null, "Test nodes by true class (row) and predicted class (column)"),
    heatMap(found.confusion, (x) => whole(x), (r, c, x) => (r === c ? `${heads[r]}, found: ${whole(x)}` : `${heads[r]} taken for ${heads[c]}: ${whole(x)}`), heads, "Confusion matrix"));
}

function recallOf(found) {
  const heads = namesOf(found, found.confusion.length);
  const rows = found.confusion.map((row, k) => {
    const hit = row[k], said = sum(found.confusion.map((other) => other[k])), there = sum(row);
    return { name: heads[k], there, recall: there ? hit / there : null, precision: said ? hit / said : null };
  });
  return el("div", null, el("h3", null, "Class by class"), el("p", { class: "lead" }, RECALL), table([{ title: "class", value: (row) => row.name },
    { title: "test nodes", value: (row) => row.there, show: whole, number: true },
    { title: "recall", value: (row) => row.recall, show: percent, number: true, bar: (row) => row.recall },
    { title: "precision", value: (row) => row.precision, show: percent, number: true, bar: (row) => row.precision }], rows, { label: "Classes" }));
}

/// Of nodes with several labels each.
function labelsOf(labels) {
  return el("div", null, el("h3", null, "Label by label"), el("p", { class: "lead" }, RECALL), table([{ title: "label", value: (row) => row.name },
    { title: "test nodes with it", value: (row) => row.there, show: whole, number: true },
    { title: "predicted for", value: (row) => row.said, show: whole, number: true },
    { title: "recall", value: (row) => (row.there ? row.hit / row.there : null), show: percent, number: true, bar: (row) => row.hit / row.there },
    { title: "precision", value: (row) => (row.said ? row.hit / row.said : null), show: percent, number: true, bar: (row) => row.hit / row.said }],
  labels, { label: "Labels" }));
}

/// Of nodes with numbers to predict: how far off, and a picture of each target.
function targetsOf(targets) {
  const column = (title, key) => ({ title, value: (row) => row[key], show: (x) => number(x), number: true });
  return el("div", null, table([{ title: "target", value: (row) => row.name }, { title: "test nodes", value: (row) => row.nodes, show: whole, number: true },
    column("mean", "mean"), column("mean absolute error", "mae"), column("root mean square error", "rmse"), column("mean error", "bias")],
  targets, { label: "Targets" }),
  el("div", { class: "charts" }, targets.slice(0, 6).filter((one) => one.points.length).map(cloud)));
}

/// Predicted against true values; on the line both are equal.
function cloud(target) {
  const [w, h, l, b] = [460, 300, 56, 40];
  const all = target.points.flat();
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const room = (high - low) * 0.04 || 1;
  const share = (x) => (x - low + room) / (high - low + 2 * room);
  const px = (x) => l + share(x) * (w - l - 12), py = (y) => h - b - share(y) * (h - b - 12);
  const picture = svg("svg", { viewBox: `0 0 ${w} ${h}`, width: "100%", role: "img",
    "aria-label": `${target.name}: predicted against true values of ${target.points.length} test nodes, mean absolute error ${number(target.mae)}` });
  for (const x of ticksOf(low, high, 5)) {
    picture.append(svg("line", { x1: l, x2: w - 12, y1: py(x), y2: py(x), class: "rule" }), svg("text", { x: l - 6, y: py(x) + 4, "text-anchor": "end", class: "faint" }, number(x, 3)),
      svg("text", { x: px(x), y: h - b + 18, "text-anchor": "middle", class: "faint" }, number(x, 3)));
  }
  picture.append(svg("line", { x1: px(low), y1: py(low), x2: px(high), y2: py(high), class: "equal" }),
    svg("text", { x: (l + w) / 2, y: h - 4, "text-anchor": "middle", class: "faint" }, "true value"));
  for (const [x, y] of target.points) picture.append(svg("circle", { cx: px(x).toFixed(1), cy: py(y).toFixed(1), r: 2.2, style: `fill:${colour(0)}`, "fill-opacity": 0.45 }));
  const shown = target.points.length < target.nodes ? `, ${whole(target.points.length)} of ${whole(target.nodes)} test nodes` : "";
  return el("div", { class: "chart" }, el("h3", null, `${target.name}: predicted (upwards) against true${shown}`), picture);
}

/// Bars of a score over groups of nodes, with how many nodes each has.
function groupsOf(found, run, key, title) {
  const rows = (Array.isArray(found[key]) ? found[key] : []).filter((group) => group.nodes > 0 && known(group.score));
  if (!rows.length) return null;
  const unit = found.group_unit ?? "%";
  const show = (x) => (unit === "%" ? `${x.toFixed(1)} %` : number(x, 3));
  return el("div", null, el("h3", null, found.group_score ? title.replace("Test score", found.group_score) : title),
    bars(rows.map((group) => ({ title: `${group.name} (${counted(group.nodes, "node", "nodes")})`, values: { score: group.score } })), ["score"], show, unit === "%" ? 100 : null));
}
