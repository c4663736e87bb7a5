// What travelled in the last epoch: between which ranks, for which operation and layer.

function messagesSection(run, prefix) {
  const ranks = run.usage && Array.isArray(run.usage.ranks) ? run.usage.ranks : [];
  if (ranks.length < 2) return null;
  const sent = ranks.flatMap((rank, k) => (rank.sent || []).map((one) => ({ ...one, rank: k })));
  const byKind = new Map();
  for (const one of sent) {
    const key = `${one.op} ${one.traffic} ${one.layer}`;
    const row = byKind.get(key) || { op: one.op, traffic: one.traffic, layer: one.layer, bytes: 0, calls: 0 };
    row.bytes += one.bytes;
    row.calls += one.calls || 0;
    byKind.set(key, row);
  }
  const kinds = [...byKind.values()].sort((a, b) => b.bytes - a.bytes);
  const to = ranks.map((rank) => rank.to || []);
  const all = sum(kinds.map((kind) => kind.bytes));
  return section(`${prefix}messages`, "Messages",
    ofSeed(run, `All ranks together sent ${bytes(all)} in the last epoch. What a rank keeps to itself is not counted.`),
    to.some((row) => row.length) ? el("h3", null, "From rank (row) to rank (column)") : null,
    to.some((row) => row.length) ? heatMap(to, bytes, (r, c) => `rank ${r} to rank ${c}`) : null,
    el("h3", null, "By operation and layer"),
    table([{ title: "operation", value: (row) => row.op }, { title: "carries", value: (row) => row.traffic }, { title: "layer", value: (row) => row.layer, number: true },
      { title: "bytes", value: (row) => row.bytes, show: bytes, number: true },
      { title: "share", value: (row) => row.bytes / (all || 1), show: (x) => `${(100 * x).toFixed(1)} %`, number: true },
      { title: "calls", value: (row) => row.calls, number: true }], kinds, { label: "Bytes by operation and layer" }));
}

/// A table whose cells are the darker the more they hold; the number stands in each, so that colour says nothing alone.
function heatMap(rows, show, title, heads) {
  const most = Math.max(...rows.flat().filter(known), 1e-300);
  const width = Math.max(...rows.map((row) => row.length));
  const names = heads || [...Array(width).keys()].map(String);
  const cell = (x, r, c) => {
    const share = known(x) ? Math.sqrt(x / most) : 0;
    // Never so dark that the number in it could not be read.
    return el("td", { title: `${title(r, c)}: ${show(x)}` }, el("span", { style:
      `background: color-mix(in srgb, #0b62a8 ${Math.round(45 * share)}%, var(--panel))` }, known(x) && x !== 0 ? show(x) : "·"));
  };
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of cells" }, el("table", { class: "cells" },
    el("thead", null, el("tr", null, el("td"), names.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", null, rows.map((row, r) => el("tr", null, el("th", { scope: "row" }, heads ? heads[r] : String(r)), row.map((x, c) => cell(x, r, c)))))));
}
