// Small tools that every view uses: elements, numbers in words, colours of the theme.

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties and children; text is always text, never markup. */
export function el(name, props = {}, ...children) {
  return filled(document.createElement(name), props, children);
}

/** The same for SVG. */
export function svg(name, props = {}, ...children) {
  return filled(document.createElementNS(SVG, name), props, children);
}

function filled(node, props, children) {
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, each] of Object.entries(value)) node.style.setProperty(name, each);
    else if (key === "value") node.value = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replaces what an element holds. */
export function fill(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

/** A card with a title and a sentence that says what is seen. */
export function card(id, title, about, ...children) {
  const header = el("header", {}, el("h2", { id: `${id}-title` }, title), about ? el("p", {}, about) : null);
  return el("section", { class: "card", id, "aria-labelledby": `${id}-title` }, header, children);
}

/** Buttons of which one is pressed; `choose` is called with the value. */
export function tabs(label, options, current, choose) {
  const bar = el("div", { class: "tabs", role: "group", "aria-label": label });
  for (const [value, text] of options) {
    const button = el("button", { type: "button", "aria-pressed": String(value === current), "data-value": value }, text);
    button.addEventListener("click", () => {
      for (const other of bar.children) other.setAttribute("aria-pressed", String(other === button));
      choose(value);
    });
    bar.append(button);
  }
  return bar;
}

/** A table from a head and rows of cells; a cell is text, a node, or {text, right, value}. */
export function table(caption, head, rows, options = {}) {
  const line = head.map((cell) => el("th", { scope: "col", class: cell.right ? "right" : null }, cell.text ?? cell));
  const body = rows.map((row) => el("tr", row.props ?? {}, (row.cells ?? row).map(tableCell)));
  const made = el("table", options, el("caption", { class: "sr" }, caption), el("thead", {}, el("tr", {}, line)), el("tbody", {}, body));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, made);
}

function tableCell(cell) {
  if (cell instanceof Node || typeof cell !== "object" || cell === null) return el("td", {}, cell);
  return el("td", { class: cell.right ? "right" : null, "data-value": cell.value }, cell.text);
}

/** A right-aligned number that keeps its exact value. */
export function right(text, value) {
  return { text, right: true, value };
}

/** The figures of a chart for those who read rather than look. */
export function numbers(title, head, rows) {
  const details = el("details", { class: "numbers" }, el("summary", {}, "Numbers"));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(table(title, head, rows));
  });
  details.rows = () => rows;
  return details;
}

const GIB = 1024 ** 3;

export function gib(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const size = bytes / GIB;
  if (Math.abs(size) >= 1) return `${size.toFixed(size >= 100 ? 1 : 2)} GiB`;
  return Math.abs(bytes) >= 1024 ** 2 ? `${(bytes / 1024 ** 2).toFixed(0)} MiB` : bytes === 0 ? "0" : `${(bytes / 1024).toFixed(0)} KiB`;
}

/** Bytes that travel, decimal as links are rated. */
export function traffic(bytes) {
  const units = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];
  const [size, unit] = units.find(([each]) => Math.abs(bytes) >= each) ?? [1, "B"];
  return `${three(bytes / size)} ${unit}`;
}

/** Three digits, zeros at the end included, so that columns line up. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(Number(value.toPrecision(3)));
  if (size >= 1000) return `${three(value)} s`;
  const [scale, unit] = size >= 1 ? [1, "s"] : size >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  return size === 0 ? "0 s" : `${(value * scale).toPrecision(3)} ${unit}`;
}

/** Three significant digits, thousands apart. */
export function three(value) {
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(3)));
}

export function whole(value) {
  return Math.round(value).toLocaleString("en-US");
}

export function percent(share, digits = 1) {
  return `${(100 * share).toFixed(digits)} %`;
}

export function signed(share, digits = 1) {
  const size = (100 * Math.abs(share)).toFixed(digits);
  return Number(size) === 0 ? `${size} %` : `${share > 0 ? "+" : "−"}${size} %`;
}

export function billions(count) {
  if (count >= 1e12) return `${three(count / 1e12)} T`;
  if (count >= 1e9) return `${three(count / 1e9)} B`;
  return count >= 1e6 ? `${three(count / 1e6)} M` : whole(count);
}

export function words(key) {
  return String(key).replaceAll("_", " ");
}

let seen = null;

/** Links to the cards that are there; the one in sight is marked. */
export function linkCards(nav, names) {
  seen?.disconnect();
  const shown = names.filter(([id]) => document.getElementById(id));
  const links = new Map(shown.map(([id, text]) => [id, el("a", { href: `#${id}` }, text)]));
  fill(nav, [...links.values()]);
  seen = new IntersectionObserver((entries) => {
    const here = entries.filter((each) => each.isIntersecting).at(-1)?.target.id;
    if (here) for (const [id, link] of links) { if (id === here) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current"); }
  }, { rootMargin: "-70px 0px -75% 0px" });
  for (const [id] of shown) seen.observe(document.getElementById(id));
}

/** A colour or other variable of the theme. */
export function themed(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Calls back when the theme changes; returns how to stop. */
export function onTheme(callback) {
  document.addEventListener("themechange", callback);
  return () => document.removeEventListener("themechange", callback);
}

/** The theme: what was chosen, else what the system prefers. */
export function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event("themechange"));
}

export function systemTheme() {
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** A switch between dark and light that remembers. */
export function themeButton() {
  const button = el("button", { type: "button", class: "icon", id: "theme" });
  const show = () => {
    const dark = document.documentElement.dataset.theme === "dark";
    fill(button, dark ? "☀ Light" : "☾ Dark");
    button.setAttribute("aria-label", `Switch to the ${dark ? "light" : "dark"} theme`);
  };
  button.addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    remember("theme", next);
    setTheme(next);
    show();
  });
  setTheme(recall("theme") ?? systemTheme());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (!recall("theme")) setTheme(systemTheme());
    show();
  });
  show();
  return button;
}

function remember(key, value) {
  try { localStorage.setItem(`planner-${key}`, value); } catch { /* a page without storage forgets */ }
}

function recall(key) {
  try { return localStorage.getItem(`planner-${key}`); } catch { return null; }
}
