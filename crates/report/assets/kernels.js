// Which kernels the time of learning went to.

const UNTIMED = "The kernels of this run were not timed. They are where that costs next to nothing: on processors; not on a GPU, which would have to stop after each of them, nor on a machine that is emulated. " +
  "Single operations are timed, beside the least they could take, by graphweft bench with --for and the folder of this run.";

function kernelsSection(run, prefix) {
  const ranks = (run.usage && Array.isArray(run.usage.ranks) ? run.usage.ranks : [])
    .map((rank) => rank.kernels).filter((kernels) => kernels && kernels.by_kernel && kernels.learn_ms > 0);
  const floors = (run.floors || []).filter((one) => one && known(one.floor_ms) && known(one.over_floor));
  const names = [...new Set(ranks.flatMap((rank) => Object.keys(rank.by_kernel)))];
  // Ranks that say nothing of kernels ran where timing them would cost time.
  const untimed = !names.length && run.usage && Array.isArray(run.usage.ranks) && run.usage.ranks.length > 0 && run.usage.ranks.every((rank) => rank && rank.kernels === null);
  if (!names.length && !floors.length && !untimed) return null;
  const learned = sum(ranks.map((rank) => rank.learn_ms));
  const rows = names.map((name) => {
    const of = ranks.map((rank) => rank.by_kernel[name] || { ms: 0, calls: 0 });
    const ms = sum(of.map((one) => one.ms)), calls = sum(of.map((one) => one.calls));
    return { name, ms, calls, each: calls ? ms / calls : null, share: ms / learned };
  }).sort((a, b) => b.ms - a.ms);
  const inside = sum(rows.map((row) => row.share));
  const time = ranks.length > 1 ? `${duration(learned)} of all ${ranks.length} ranks together` : duration(learned);
  const rest = ranks.length > 1 ? "the rest was waiting for other ranks, and bookkeeping" : "the rest was bookkeeping";
  const most = rows.length ? rows[0].share : 1;
  return section(`${prefix}kernels`, titled(run, "Kernels"),
    ofSeed(run, rows.length ? `Learning took ${time}. Of that, ${percent(inside)} was spent in kernels; ${rest}.` : untimed ? UNTIMED : null),
    rows.length ? table([{ title: "kernel", value: (row) => row.name },
      { title: "share of the time", value: (row) => row.share, show: percent, number: true, bar: (row) => row.share / most },
      { title: "time", value: (row) => row.ms, show: duration, number: true }, { title: "calls", value: (row) => row.calls, show: whole, number: true },
      { title: "one call", value: (row) => row.each, show: duration, number: true }], rows, { label: "Kernels" }) : null,
    floors.length ? floorsOf(floors) : null);
}

/// What bench measured for this run, beside the least that it could have taken.
function floorsOf(floors) {
  return el("div", null, el("h3", null, "Beside the floor"),
    el("p", { class: "lead" }, "The floor is the time of a kernel that only loads the operands, measured by graphweft bench. Of a graph that fits into caches it says little."),
    table([{ title: "operation", value: (one) => one.op }, { title: "graph", value: (one) => one.graph, text: true },
      { title: "width", value: (one) => one.hidden, show: whole, number: true },
      { title: "forward and backward", value: (one) => one.forward_ms + one.backward_ms, show: duration, number: true },
      { title: "floor", value: (one) => one.floor_ms, show: duration, number: true },
      { title: "times the floor", value: (one) => one.over_floor, show: (x) => x.toFixed(2), number: true }], floors, { label: "Operations beside their floor" }));
}
