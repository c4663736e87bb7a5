// Several runs side by side.

function compareSection(runs) {
  const epoch = (run) => median((run.seeds[0] || { times: {} }).times.learn_ms || []);
  const whole = (run) => sum((run.seeds[0] || { times: {} }).times.learn_ms || []);
  const peak = (run) => (run.plan && run.plan.measured ? run.plan.measured.peak_bytes
    : run.usage && run.usage.ranks ? Math.max(...run.usage.ranks.map((rank) => sum(Object.values(rank.peak)))) : null);
  const columns = [
    { title: "run", value: (run) => run.name, show: (name, run) => el("a", { href: `#${run.id}summary` }, name) },
    { title: "dataset", value: (run) => run.dataset }, { title: "model", value: (run) => run.model },
    { title: "test", value: (run) => scored(run, "test").mean, show: (_, run) => scored(run, "test").text, number: true },
    { title: "validation", value: (run) => scored(run, "valid").mean, show: (_, run) => scored(run, "valid").text, number: true },
    { title: "seeds", value: (run) => run.seeds.length, number: true },
    { title: "median epoch", value: epoch, show: duration, number: true },
    { title: "all epochs", value: whole, show: duration, number: true },
    { title: "peak memory", value: peak, show: bytes, number: true },
    { title: "strategy", value: (run) => run.plan && run.plan.strategy }, { title: "ranks", value: (run) => run.plan && run.plan.ranks, number: true },
    { title: "state", value: (run) => run.state },
  ];
  const keysOfAll = [...new Set(runs.flatMap((run) => run.settings.map((s) => s.key)))];
  const valueOf = (run, key) => (run.settings.find((s) => s.key === key) || { value: "not set" }).value;
  const differing = keysOfAll.filter((key) => new Set(runs.map((run) => valueOf(run, key))).size > 1);
  const settings = [{ title: "setting", value: (key) => key },
    ...runs.map((run) => ({ title: run.name, value: (key) => valueOf(run, key), text: true }))];
  return section("compare", "Runs beside each other", null,
    table(columns, runs, { label: "Runs" }),
    el("div", { class: "charts" },
      scatter(runs, whole, "time of all epochs", duration), scatter(runs, peak, "peak memory of a rank", bytes)),
    el("h3", null, "Settings that differ"),
    differing.length ? table(settings, differing, { label: "Settings that differ" }) : el("p", null, "None."));
}

function scatter(runs, value, title, show) {
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
  for (let k = 0; k <= 4; k += 1) {
    const [x, y] = [xs[0] + ((xs[1] - xs[0]) * k) / 4, ys[0] + ((ys[1] - ys[0]) * k) / 4];
    picture.append(svg("line", { x1: l, x2: w - 12, y1: py(y), y2: py(y), class: "rule" }),
      svg("text", { x: l - 6, y: py(y) + 4, "text-anchor": "end", class: "faint" }, number(y, 3)),
      svg("text", { x: px(x), y: h - b + 18, "text-anchor": k === 4 ? "end" : "middle", class: "faint" }, x < 0 ? "" : show(x)));
  }
  for (const p of points) {
    picture.append(svg("circle", { cx: px(p.x), cy: py(p.y), r: 6, fill: colour(p.k), ...tipped(`${p.run.name}: ${number(p.y)} at ${show(p.x)}`) }),
      svg("text", { x: px(p.x) + 9, y: py(p.y) + 4 }, p.run.name.slice(0, 24)));
  }
  box.append(picture);
  return box;
}
