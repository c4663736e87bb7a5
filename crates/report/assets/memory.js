// Memory of every rank when it used most, by purpose.

function memorySection(run, prefix) {
  const ranks = run.usage && Array.isArray(run.usage.ranks) ? run.usage.ranks : [];
  if (!ranks.length) return null;
  const purposes = [...new Set(ranks.flatMap((rank) => Object.keys(rank.peak || {})))]
    .filter((purpose) => ranks.some((rank) => rank.peak[purpose] > 0));
  const rows = ranks.map((rank, k) => ({ title: `rank ${k}`, values: rank.peak }));
  return section(`${prefix}memory`, "Memory", ofSeed(run, "What each rank held when it held most, by purpose."), bars(rows, purposes, bytes),
    table([{ title: "rank", value: (row) => Number(row.title.slice(5)), number: true },
      ...purposes.map((purpose) => ({ title: purpose, value: (row) => row.values[purpose] || 0, show: bytes, number: true })),
      { title: "all", value: (row) => sum(Object.values(row.values)), show: bytes, number: true }], rows, { label: "Memory by purpose" }));
}
