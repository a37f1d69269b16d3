/** A section of the page: a heading, what it shows, its options, its picture or table, and what saves them. */
import type { Context } from "./context";
import { choice, h } from "./dom";
import { saveCsv, savePng, saveSvg } from "./export";
import { Picture, placeIn, type LegendItem, type Panel } from "./picture";
import type { Table } from "./text";

export interface Option {
  label: string;
  choices: readonly (readonly [value: string, text: string])[];
}

/** What a view has made for the page. */
export interface Made {
  panels: Panel[];
  legend: LegendItem[];
  /** What stands below the picture, or instead of it. */
  below: Node[];
  table: () => Table;
}

export interface ViewSpec {
  id: string;
  title: string;
  about: string;
  options: Record<string, Option>;
  /** Whether an input of the group has what it shows. */
  has: (context: Context) => boolean;
  /** Draws, or says why there is nothing to draw. */
  make: (context: Context, width: number, options: Record<string, string>) => Made | string;
}

export interface View {
  element: HTMLElement;
  id: string;
  title: string;
  /** Whether there is something to draw. */
  has: () => boolean;
  draw: () => void;
  setTime: () => void;
}

/** The outer parts of a section. */
export function shell(
  id: string,
  title: string,
  about: string,
): { element: HTMLElement; tools: HTMLElement } {
  const tools = h("div", { class: "tools" });
  const heading = h("h2", { id: `${id}-heading` }, title);
  const element = h(
    "section",
    { id, "aria-labelledby": `${id}-heading` },
    heading,
    h("p", { class: "about" }, about),
  );
  element.append(tools);
  return { element, tools };
}

export function makeView(spec: ViewSpec, context: Context): View {
  const { element, tools } = shell(spec.id, spec.title, spec.about);
  const body = h("div", { class: "body" });
  const readout = h("p", { class: "readout", "aria-live": "polite" });
  const values: Record<string, string> = {};
  let made: Made | string = "";
  let picture: Picture | null = null;
  const draw = (): void => {
    made = spec.make(context, Math.max(300, Math.floor(element.clientWidth)), values);
    picture = null;
    readout.textContent = "";
    const isEmpty = typeof made === "string";
    for (const button of tools.querySelectorAll("button")) button.disabled = isEmpty;
    if (typeof made === "string") {
      body.replaceChildren(h("p", { class: "empty" }, made));
      return;
    }
    const { panels, legend, below } = made;
    if (panels.length > 0) {
      const width = Math.max(300, Math.floor(element.clientWidth));
      picture = new Picture(spec.id, spec.title, panels, legend, width, context.theme);
      explore(picture.svg, panels, readout, context);
      picture.setTime(context.time);
      body.replaceChildren(picture.svg, readout, ...below);
    } else {
      body.replaceChildren(...below);
    }
    const isPicture = picture !== null;
    for (const button of tools.querySelectorAll<HTMLButtonElement>("button[data-picture]"))
      button.hidden = !isPicture;
  };
  for (const [name, option] of Object.entries(spec.options)) {
    const first = option.choices[0]![0];
    values[name] = first;
    const changed = (value: string): void => {
      values[name] = value;
      draw();
    };
    tools.append(choice(option.label, option.choices, first, changed));
  }
  const file = `headstart-${spec.id}`;
  const button = (text: string, isPicture: boolean, save: () => void): void =>
    tools.append(
      h("button", { type: "button", "data-picture": isPicture, click: save, title: `Save as ${text}` }, text),
    );
  button("SVG", true, () => picture && saveSvg(file, picture.svg));
  button("PNG", true, () => void (picture && savePng(file, picture.svg)));
  button("CSV", false, () => typeof made !== "string" && saveCsv(file, made.table()));
  element.append(body);
  const has = (): boolean => spec.has(context);
  return {
    element,
    id: spec.id,
    title: spec.title,
    has,
    draw,
    setTime: () => picture?.setTime(context.time),
  };
}

/** Says what is below the pointer or the keyboard's place, and moves the playback by a click or Enter. */
function explore(svg: SVGSVGElement, panels: Panel[], readout: HTMLElement, context: Context): void {
  const tell = (panel: Panel, x: number, y: number): void => {
    readout.textContent = `${panel.heading}: ${panel.describe(x, y)}`;
  };
  const find = (event: MouseEvent): [Panel, number, number] | null => {
    for (const panel of panels) {
      const place = placeIn(panel, event);
      if (place) return [panel, ...place];
    }
    return null;
  };
  svg.addEventListener("pointermove", (event) => {
    const found = find(event);
    if (found) tell(...found);
  });
  svg.addEventListener("click", (event) => {
    const found = find(event);
    if (found?.[0].time) context.setTime(found[1]);
  });
  // The keyboard's place: a panel, and a share of its width.
  let current = 0;
  let share = 0.5;
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("keydown", (event) => {
    const steps: Record<string, [number, number]> = {
      ArrowLeft: [0, -0.01],
      ArrowRight: [0, 0.01],
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      Home: [0, -1],
      End: [0, 1],
      Enter: [0, 0],
    };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    current = Math.max(0, Math.min(panels.length - 1, current + step[0]));
    share = Math.max(0, Math.min(1, share + step[1]));
    const panel = panels[current]!;
    const scale = panel.plot.scale("x")!;
    const [left, right] = scale.range as [number, number];
    const x = scale.invert!(left + share * (right - left)) as number;
    if (event.key === "Enter" && panel.time) context.setTime(x);
    tell(panel, x, NaN);
  });
}
