// Elements, and what the reader has changed about the page. Data are only ever put in as text.

// Okabe and Ito's colours: they differ for colour-blind readers too, on white and on black.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#8c564b", "#7f7f7f"];
const colour = (k) => COLOURS[k % COLOURS.length];

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

/// Says which seed a section is about, where there are several.
const ofSeed = (run, text) => (run.shownSeed === null || run.shownSeed === undefined ? text : [`Of seed ${run.shownSeed}.`, text].filter(Boolean).join(" "));

/// A section that the contents link to.
function section(id, title, lead, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title), lead ? el("p", { class: "lead" }, lead) : null, ...children);
}

/// What survives a reload: the theme, zooms, hidden series, where the reader was. A frame that is shut off from its
/// origin, as notebooks make them, has no storage; its name survives too.
const kept = (() => {
  const name = "graphweft-report";
  const own = () => (window.name.startsWith(`${name}:`) ? window.name.slice(name.length + 1) : "{}");
  const load = () => { try { return sessionStorage.getItem(name) || "{}"; } catch { return own(); } };
  const store = (text) => { try { sessionStorage.setItem(name, text); } catch { window.name = `${name}:${text}`; } };
  let all = {};
  try { all = JSON.parse(load()); } catch { all = {}; }
  return { get: (key, otherwise) => (key in all ? all[key] : otherwise), set: (key, value) => { all[key] = value; store(JSON.stringify(all)); } };
})();

/// A table that can be sorted by any column: `columns` have a title, a value, and optionally how to show it.
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
        return el("td", { class: column.number ? "number" : column.text ? "text" : null }, shown ?? "–");
      }))));
  }
  function sort(k) {
    order.up = order.column === k ? !order.up : true;
    order.column = k;
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

/// Coloured keys that switch series on and off.
function keys(entries, change) {
  return el("div", { class: "keys", role: "group", "aria-label": "Series" }, entries.map((entry) => {
    const button = el("button", { type: "button", "aria-pressed": entry.shown ? "true" : "false", onclick: () => {
      entry.shown = !entry.shown;
      button.setAttribute("aria-pressed", entry.shown ? "true" : "false");
      change(entry);
    } }, el("span", { class: "swatch", style: `background:${entry.colour}` }), entry.title);
    return button;
  }));
}

/// Horizontal bars made of parts: memory by purpose, time by what it is spent on.
function bars(rows, parts, show) {
  const most = Math.max(...rows.map((row) => parts.reduce((sum, part) => sum + (row.values[part] || 0), 0)), 1e-300);
  const line = 26, left = Math.min(230, 20 + 7 * Math.max(...rows.map((row) => row.title.length))), width = 900;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${rows.length * line + 4}`, width: "100%", role: "img",
    "aria-label": rows.map((row) => `${row.title}: ${parts.map((p) => `${p} ${show(row.values[p] || 0)}`).join(", ")}`).join("; ") });
  rows.forEach((row, k) => {
    let x = left;
    const y = k * line + 4;
    picture.append(svg("text", { x: left - 8, y: y + 14, "text-anchor": "end", "font-weight": row.chosen ? 700 : 400 }, row.title));
    const total = parts.reduce((sum, part) => sum + (row.values[part] || 0), 0);
    parts.forEach((part, place) => {
      const wide = ((row.values[part] || 0) / most) * (width - left - 110);
      if (wide <= 0) return;
      picture.append(svg("rect", { x, y, width: Math.max(wide, 0.5), height: line - 8, fill: colour(place),
        ...tipped(`${row.title}: ${part} ${show(row.values[part])}`) }));
      x += wide;
    });
    picture.append(svg("text", { x: x + 6, y: y + 14, class: "faint" }, show(total)));
  });
  const legend = el("div", { class: "keys" }, parts.map((part, k) =>
    el("span", null, el("span", { class: "swatch", style: `background:${colour(k)}` }), `${part}\u2003`)));
  return el("div", { class: "scroll" }, legend, picture);
}
