// Memory of every rank when it used most, by purpose.

const PURPOSES = ["parameters", "gradients", "optimizer", "activations", "graph", "exchange", "workspace"];

function memorySection(run, prefix) {
  const ranks = run.usage && Array.isArray(run.usage.ranks) ? run.usage.ranks : [];
  if (!ranks.length) return null;
  const all = [...new Set([...PURPOSES, ...ranks.flatMap((rank) => Object.keys(rank.peak || {}))])];
  const purposes = all.filter((purpose) => ranks.some((rank) => (rank.peak || {})[purpose] > 0));
  const rows = ranks.map((rank, k) => ({ title: `rank ${k}`, rank: k, values: rank.peak || {} }));
  return section(`${prefix}memory`, titled(run, "Memory"), ofSeed(run, "What each rank held at the moment when it held most, by what it is for."), bars(rows, purposes, bytes),
    table([{ title: "rank", value: (row) => row.rank, number: true },
      ...purposes.map((purpose) => ({ title: purpose, value: (row) => row.values[purpose] || 0, show: bytes, number: true })),
      { title: "together", value: (row) => sum(Object.values(row.values)), show: bytes, number: true }], rows, { label: "Memory by purpose" }));
}
