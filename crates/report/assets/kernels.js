// Which kernels the time of learning went to.

function kernelsSection(run, prefix) {
  const ranks = (run.usage && Array.isArray(run.usage.ranks) ? run.usage.ranks : [])
    .map((rank) => rank.kernels).filter((kernels) => kernels && kernels.by_kernel && kernels.learn_ms > 0);
  const floors = (run.floors || []).filter((one) => one && known(one.floor_ms) && known(one.over_floor));
  const names = [...new Set(ranks.flatMap((rank) => Object.keys(rank.by_kernel)))];
  if (!names.length && !floors.length) return null;
  const learned = sum(ranks.map((rank) => rank.learn_ms));
  const rows = names.map((name) => {
    const of = ranks.map((rank) => rank.by_kernel[name] || { ms: 0, calls: 0 });
    const ms = sum(of.map((one) => one.ms)), calls = sum(of.map((one) => one.calls));
    return { name, ms, calls, each: calls ? ms / calls : null, share: ms / learned };
  }).sort((a, b) => b.ms - a.ms);
  const shown = rows.filter((row) => row.share >= 0.005).slice(0, 14);
  const share = (x) => `${(100 * x).toFixed(1)} %`;
  const inside = sum(rows.map((row) => row.share));
  return section(`${prefix}kernels`, "Kernels",
    ofSeed(run, rows.length ? `Of the time in which ranks learned, ${duration(learned)} of all ranks together, ${share(inside)} was spent in kernels; the rest was waiting for other ranks, and bookkeeping.` : null),
    shown.length ? bars(shown.map((row) => ({ title: row.name, values: { "share of the time": 100 * row.share } })), ["share of the time"], (x) => `${x.toFixed(1)} %`) : null,
    rows.length ? table([{ title: "kernel", value: (row) => row.name }, { title: "share", value: (row) => row.share, show: share, number: true },
      { title: "time", value: (row) => row.ms, show: duration, number: true }, { title: "calls", value: (row) => row.calls, number: true },
      { title: "one call", value: (row) => row.each, show: duration, number: true }], rows, { label: "Kernels" }) : null,
    floors.length ? el("h3", null, "Beside the floor: what only loading the operands takes") : null,
    floors.length ? table([{ title: "operation", value: (one) => one.op }, { title: "graph", value: (one) => one.graph, text: true },
      { title: "width", value: (one) => one.hidden, number: true },
      { title: "forward and backward", value: (one) => one.forward_ms + one.backward_ms, show: duration, number: true },
      { title: "floor", value: (one) => one.floor_ms, show: duration, number: true },
      { title: "times the floor", value: (one) => one.over_floor, show: (x) => x.toFixed(2), number: true }], floors, { label: "Operations beside their floor" }) : null);
}
