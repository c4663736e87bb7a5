// Elements, and what the reader has changed about the page. Data are only ever put in as text.

// The page's style has the colours, others in the dark than on white. A canvas must be told what they are now.
const COLOURS = 8;
const colour = (k) => `var(--c${k % COLOURS})`;
const paint = (k) => getComputedStyle(document.documentElement).getPropertyValue(`--c${k % COLOURS}`).trim();

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) {
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
  }
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/// The title of a section, with the run that it is about where there are several.
const titled = (run, title) => (run.id ? `${title} · ${run.name}` : title);

/// Says which seed a section is about, where there are several.
const ofSeed = (run, text) => (run.shownSeed === null || run.shownSeed === undefined ? text : [`Of seed ${run.shownSeed}.`, text].filter(Boolean).join(" "));

/// A section that the contents link to.
function section(id, title, lead, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title), lead ? el("p", { class: "lead" }, lead) : null, ...children);
}

/// What survives a reload: the theme, zooms, hidden series, order of tables, where the reader was. A frame that is shut
/// off from its origin, as notebooks make them, has no storage; its name survives too.
const kept = (() => {
  const name = "graphweft-report";
  const own = () => (window.name.startsWith(`${name}:`) ? window.name.slice(name.length + 1) : "{}");
  const load = () => { try { return sessionStorage.getItem(name) || "{}"; } catch { return own(); } };
  const store = (text) => { try { sessionStorage.setItem(name, text); } catch { window.name = `${name}:${text}`; } };
  let all = {};
  try { all = JSON.parse(load()); } catch { all = {}; }
  return { get: (key, otherwise) => (key in all ? all[key] : otherwise), set: (key, value) => { all[key] = value; store(JSON.stringify(all)); } };
})();

/// A table that can be sorted by any column: `columns` have a title, a value, and optionally how to show it, and how
/// much of the cell is filled to draw it.
function table(columns, rows, options = {}) {
  const body = el("tbody");
  const order = { column: null, up: true };
  const heads = columns.map((column, k) => {
    const button = el("button", { type: "button", title: `Sort by ${column.title}`, onclick: () => sort(k) }, column.title);
    return el("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": "none" }, button);
  });
  function draw(list) {
    body.replaceChildren(...list.map((row) => el("tr", { class: options.mark ? options.mark(row) : null },
      columns.map((column) => {
        const value = column.value(row);
        const shown = column.show ? column.show(value, row) : value;
        const filled = column.bar ? Math.min(1, Math.max(0, column.bar(row) || 0)) : null;
        return el("td", { class: [column.number ? "number" : column.text ? "text" : null, filled === null ? null : "filled"].filter(Boolean).join(" ") || null,
          style: filled === null ? null : `--filled:${(100 * filled).toFixed(2)}%` }, shown ?? "–");
      }))));
  }
  const remembered = `sorted-${options.label}`;
  function sort(k, up = order.column === k ? !order.up : true) {
    order.up = up;
    order.column = k;
    kept.set(remembered, [k, up]);
    heads.forEach((head, place) => head.setAttribute("aria-sort", place !== k ? "none" : order.up ? "ascending" : "descending"));
    const none = (x) => x === null || x === undefined || Number.isNaN(x);
    const value = columns[k].value;
    draw([...rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (none(x) || none(y)) return none(x) - none(y);
      const less = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return order.up ? less : -less;
    }));
  }
  draw(rows);
  const [column, up] = kept.get(remembered, []);
  if (column < columns.length) sort(column, up);
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": options.label || "Table" },
    el("table", null, options.label ? el("caption", { class: "faint", hidden: true }, options.label) : null,
      el("thead", null, el("tr", null, heads)), body));
}

/// A few words beside the pointer.
const tip = (() => {
  const box = el("div", { class: "tip", "aria-hidden": "true" });
  document.body.append(box);
  return {
    show(event, text) {
      box.textContent = text;
      box.style.display = "block";
      const wide = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8);
      box.style.left = `${Math.max(4, wide)}px`;
      box.style.top = `${Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8)}px`;
    },
    hide() { box.style.display = "none"; },
  };
})();
const tipped = (text) => ({ onpointermove: (event) => tip.show(event, text), onpointerleave: () => tip.hide() });

/// Saves text as a file of the reader's.
function save(name, type, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/// Coloured keys that switch series on and off, each with room for a value.
function keys(entries, change) {
  return el("div", { class: "keys", role: "group", "aria-label": "Series" }, entries.map((entry) => {
    entry.value = el("span", { class: "value" });
    const button = el("button", { type: "button", "aria-pressed": entry.shown ? "true" : "false", title: "Show or hide", onclick: () => {
      entry.shown = !entry.shown;
      button.setAttribute("aria-pressed", entry.shown ? "true" : "false");
      change(entry);
    } }, el("span", { class: "swatch", style: entry.dashed ? `background:repeating-linear-gradient(90deg,${entry.colour} 0 3px,transparent 3px 5px)` : `background:${entry.colour}` }), entry.title, entry.value);
    return button;
  }));
}

/// What the colours of a picture mean.
const legend = (parts) => el("div", { class: "keys" }, parts.map((part, k) =>
  el("span", { class: "key" }, el("span", { class: "swatch", style: `background:${colour(k)}` }), part)));

/// Horizontal bars made of parts: memory by purpose, time by what it is spent on. `most` is what fills the whole width.
function bars(rows, parts, show, most = null) {
  const total = (row) => sum(parts.map((part) => row.values[part]));
  const full = most || Math.max(...rows.map(total), 1e-300);
  const said = rows.map((row) => `${row.title}: ${parts.map((part) => `${parts.length > 1 ? `${part} ` : ""}${show(row.values[part] || 0)}`).join(", ")}`);
  return el("div", { class: "bars", role: "img", "aria-label": said.join("; ") }, parts.length > 1 ? legend(parts) : null,
    rows.map((row) => el("div", { class: row.chosen ? "bar chosen" : "bar" }, el("span", { class: "name" }, row.title),
      el("span", { class: "track" }, parts.map((part, k) => {
        const share = Math.min(1, (row.values[part] || 0) / full);
        return share > 0 ? el("span", { style: `width:${(100 * share).toFixed(3)}%;background:${colour(k)}`, ...tipped(`${row.title}: ${part} ${show(row.values[part])}`) }) : null;
      })),
      el("span", { class: "total" }, show(total(row))))));
}
