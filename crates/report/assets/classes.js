// Which classes are taken for which, and which nodes are hard.

function classesSection(run, prefix) {
  const classes = run.data && run.data.classes;
  if (!classes) return null;
  const parts = [];
  const names = classes.names || [];
  if (classes.confusion) {
    const size = classes.confusion.length;
    const heads = [...Array(size).keys()].map((k) => names[k] || String(k));
    parts.push(el("h3", null, "Confusion matrix of the test nodes: true class (row), predicted (column)"),
      heatMap(classes.confusion, (x) => String(x), (r, c) => `${heads[r]} taken for ${heads[c]}`, heads));
    const rows = classes.confusion.map((row, k) => {
      const hit = row[k], said = sum(classes.confusion.map((other) => other[k])), there = sum(row);
      return { name: heads[k], there, recall: there ? hit / there : null, precision: said ? hit / said : null };
    });
    const share = (x) => (known(x) ? `${(100 * x).toFixed(1)} %` : "–");
    parts.push(table([{ title: "class", value: (row) => row.name }, { title: "test nodes", value: (row) => row.there, number: true },
      { title: "recall", value: (row) => row.recall, show: share, number: true }, { title: "precision", value: (row) => row.precision, show: share, number: true }],
    rows, { label: "Classes" }));
  }
  for (const [key, title] of [["by_degree", "Score by degree of the node"], ["by_homophily", "Score by share of neighbours of the same class"]]) {
    if (Array.isArray(classes[key]) && classes[key].length) parts.push(el("h3", null, title), groupBars(classes[key], run));
  }
  return parts.length ? section(`${prefix}classes`, "Classes", run.seeds.length > 1 ? `Of seed ${run.seeds[0].seed}, whichever is chosen above.` : null, ...parts) : null;
}

/// Bars of a score over groups of nodes, with how many nodes each has.
function groupBars(groups, run) {
  const rows = groups.filter((group) => group.nodes > 0);
  const picture = bars(rows.map((group) => ({ title: `${group.name} (${group.nodes} nodes)`, values: { score: group.score } })), ["score"], (x) => score(x, run));
  return picture;
}
