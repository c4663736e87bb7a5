// Several runs side by side.

function compareSection(runs) {
  const epoch = (run) => median((run.seeds[0] || { times: {} }).times.learn_ms || []);
  const learned = (run) => mean(learnedMs(run)) || null;
  const columns = [
    { title: "run", value: (run) => run.name, show: (name, run) => el("span", { class: "whole" }, el("span", { class: "swatch", style: `background:${colour(runs.indexOf(run))}` }), el("a", { href: `#${run.id}summary` }, name)) },
    { title: "dataset", value: (run) => run.dataset }, { title: "model", value: (run) => run.model },
    { title: "test", value: (run) => scored(run, "test").mean, show: (_, run) => scored(run, "test").text, number: true },
    { title: "validation", value: (run) => scored(run, "valid").mean, show: (_, run) => scored(run, "valid").text, number: true },
    { title: "seeds", value: (run) => run.seeds.length, number: true },
    { title: "median epoch", value: epoch, show: duration, number: true },
    { title: "all epochs", value: learned, show: duration, number: true },
    { title: "peak memory", value: peakOf, show: bytes, number: true },
    { title: "strategy", value: (run) => run.plan && run.plan.strategy }, { title: "ranks", value: (run) => run.plan && run.plan.ranks, number: true },
    { title: "state", value: (run) => run.state },
  ];
  const keysOfAll = [...new Set(runs.flatMap((run) => run.settings.map((s) => s.key)))];
  const valueOf = (run, key) => (run.settings.find((s) => s.key === key) || { value: "not set" }).value;
  const differing = keysOfAll.filter((key) => new Set(runs.map((run) => valueOf(run, key))).size > 1).sort();
  const settings = [{ title: "setting", value: (key) => key },
    ...runs.map((run) => ({ title: run.name, value: (key) => valueOf(run, key), text: true }))];
  return section("compare", "Runs beside each other", null,
    table(columns, runs, { label: "Runs" }),
    el("div", { class: "charts spaced" },
      scatter(runs, learned, "learning time of all epochs", duration, unitOfTime), scatter(runs, peakOf, "peak memory of a rank", bytes, (x) => unitOf([x]).size)),
    el("h3", null, "Settings that differ"),
    differing.length ? table(settings, differing, { label: "Settings that differ" }) : el("p", null, "None."));
}

function scatter(runs, value, title, show, unit) {
  const points = runs.map((run, k) => ({ run, k, x: value(run), y: scored(run, "test").mean })).filter((p) => known(p.x) && known(p.y));
  const box = el("div", { class: "chart" }, el("h3", null, `Test score against ${title}`));
  if (!points.length) { box.append(el("p", null, "Nothing to draw.")); return box; }
  const [w, h, l, b] = [460, 260, 56, 34];
  const range = (list) => { const [a, z] = [Math.min(...list), Math.max(...list)]; const r = (z - a) * 0.12 || Math.abs(z) * 0.1 || 1; return [a - r, z + r]; };
  const [xs, ys] = [range(points.map((p) => p.x)), range(points.map((p) => p.y))];
  const px = (x) => l + ((x - xs[0]) / (xs[1] - xs[0])) * (w - l - 12);
  const py = (y) => h - b - ((y - ys[0]) / (ys[1] - ys[0])) * (h - b - 12);
  const picture = svg("svg", { viewBox: `0 0 ${w} ${h}`, width: "100%", role: "img",
    "aria-label": points.map((p) => `${p.run.name}: ${number(p.y)} at ${show(p.x)}`).join("; ") });
  for (const y of ticksOf(...ys, 5)) {
    picture.append(svg("line", { x1: l, x2: w - 12, y1: py(y), y2: py(y), class: "rule" }), svg("text", { x: l - 6, y: py(y) + 4, "text-anchor": "end", class: "faint" }, number(y, 4)));
  }
  for (const x of ticksOf(Math.max(0, xs[0]), xs[1], 5, unit(xs[1]))) {
    picture.append(svg("line", { x1: px(x), x2: px(x), y1: 12, y2: h - b, class: "rule" }), svg("text", { x: px(x), y: h - b + 18, "text-anchor": px(x) > w - 40 ? "end" : "middle", class: "faint" }, x ? show(x) : "0"));
  }
  // Names keep apart from each other, on the side where there is room.
  let below = -Infinity;
  for (const p of [...points].sort((a, b) => b.y - a.y)) {
    const y = Math.max(py(p.y) + 4, below + 14), left = px(p.x) > w * 0.6;
    below = y;
    picture.append(svg("circle", { cx: px(p.x), cy: py(p.y), r: 6, style: `fill:${colour(p.k)}`, ...tipped(`${p.run.name}: ${number(p.y)} at ${show(p.x)}`) }),
      svg("text", { x: px(p.x) + (left ? -9 : 9), y, "text-anchor": left ? "end" : "start" }, p.run.name.slice(0, 24)));
  }
  box.append(picture);
  return box;
}
