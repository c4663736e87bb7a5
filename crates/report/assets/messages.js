// What travelled in the last epoch: between which ranks, for which operation and layer.

/// With more ranks, neighbouring ones share a cell: more cells could not be told apart.
const MOST_CELLS = 32;

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
  const all = sum(kinds.map((kind) => kind.bytes));
  const most = Math.max(...kinds.map((kind) => kind.bytes), 1);
  const operations = el("div", null, el("h3", null, "By operation and layer"),
    table([{ title: "operation", value: (row) => row.op }, { title: "carries", value: (row) => row.traffic },
      // What belongs to no layer has the number 0.
      { title: "layer", value: (row) => row.layer || null, number: true },
      { title: "bytes", value: (row) => row.bytes, show: bytes, number: true, bar: (row) => row.bytes / most },
      { title: "share", value: (row) => row.bytes / (all || 1), show: percent, number: true },
      { title: "calls", value: (row) => row.calls, show: whole, number: true }], kinds, { label: "Bytes by operation and layer" }));
  const peers = peersOf(ranks.map((rank) => rank.to || []));
  const codec = ((run.settings || []).find((s) => s.key === "wire.codec") || {}).value;
  const coded = known(codec) && !String(codec).includes("exact") ? ` Rows travelled as ${String(codec).replaceAll('"', "")}, and are counted as they were sent.` : "";
  return section(`${prefix}messages`, titled(run, "Messages"),
    ofSeed(run, `All ranks together sent ${bytes(all)} in the last epoch. What a rank keeps to itself is not counted.${coded}`),
    el("div", { class: ranks.length <= 6 ? "halves" : null }, peers, operations));
}

/// Bytes from each rank to each other.
function peersOf(to) {
  if (!to.some((row) => row.length)) return null;
  const each = Math.ceil(to.length / MOST_CELLS);
  const count = Math.ceil(to.length / each);
  const places = [...Array(count).keys()];
  const block = (r, c) => sum(to.slice(r * each, (r + 1) * each).flatMap((row) => row.slice(c * each, (c + 1) * each)));
  const cells = each === 1 ? to : places.map((r) => places.map((c) => block(r, c)));
  const names = places.map((k) => (each === 1 ? String(k) : `${k * each}–${Math.min(to.length, (k + 1) * each) - 1}`));
  const unit = unitOf(cells.flat());
  const show = (x) => (x / unit.size >= 100 || unit.size === 1 ? (x / unit.size).toFixed(0) : (x / unit.size).toFixed(1));
  return el("div", null, el("h3", null, `${unit.size === 1 ? "Bytes" : unit.name} from rank (row) to rank (column)`),
    heatMap(cells, show, (r, c, x) => `rank ${names[r]} to rank ${names[c]}: ${bytes(x)}`, names, `Bytes between ranks, in ${unit.name}`));
}

/// A table whose cells are the darker the more they hold; the number stands in each, so that colour says nothing alone.
function heatMap(rows, show, title, names, label) {
  const most = Math.max(...rows.flat().filter(known), 1e-300);
  const cell = (x, r, c) => {
    const share = known(x) ? Math.sqrt(x / most) : 0;
    // Never so dark that the number in it could not be read.
    return el("td", { title: title(r, c, x) }, el("span", { style:
      `background: color-mix(in srgb, #0b62a8 ${Math.round(45 * share)}%, var(--panel))` }, known(x) && x !== 0 ? show(x) : "·"));
  };
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, el("table", { class: "cells" },
    el("thead", null, el("tr", null, el("td"), names.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", null, rows.map((row, r) => el("tr", null, el("th", { scope: "row" }, names[r]), row.map((x, c) => cell(x, r, c)))))));
}
