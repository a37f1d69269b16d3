/** Elements without markup: all text is set as text, so that no name can become an element. */

type Attributes = Record<string, string | number | boolean | null | ((event: Event) => void)>;
type Child = Node | string | null;

/** Makes an HTML element. A function is a listener of the event that its key names. */
export function h<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(name), attributes, children);
}

const SVG = "http://www.w3.org/2000/svg";

/** Makes an SVG element. */
export function s<K extends keyof SVGElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null) element.setAttribute(key, String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A labelled list of choices. */
export function choice(
  label: string,
  choices: readonly (readonly [value: string, text: string])[],
  chosen: string,
  changed: (value: string) => void,
): HTMLLabelElement {
  const select = h("select", { change: () => changed(select.value) });
  for (const [value, text] of choices)
    select.append(h("option", { value, selected: value === chosen }, text));
  return h("label", { class: "choice" }, label, select);
}

/** A table; cells are text or elements. Numbers stand at the right. */
export function table(
  caption: string,
  columns: readonly string[],
  rows: readonly (readonly (string | Node)[])[],
  textColumns = 1,
): HTMLElement {
  const side = (index: number): string => (index < textColumns ? "text" : "number");
  const head = columns.map((name, index) => h("th", { scope: "col", class: side(index) }, name));
  const body = rows.map((row) =>
    h("tr", {}, ...row.map((cell, index) => h("td", { class: side(index) }, cell))),
  );
  const content = h(
    "table",
    {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...body),
  );
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, content);
}
