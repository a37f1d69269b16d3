/** Pictures: panels below one another on shared axes, with a legend, as one SVG that can be saved. */
import * as Plot from "@observablehq/plot";
import { sumOf, type Density, type Scale } from "./bins";
import { s } from "./dom";
import { colour, HATCHES, rgba, type Theme } from "./palette";
import { shorten } from "./text";

export interface Panel {
  heading: string;
  plot: SVGSVGElement & Plot.Plot;
  /** Whether its x axis is the time of the start. */
  time: boolean;
  /** What is at a place, in words. */
  describe: (x: number, y: number) => string;
}

export interface LegendItem {
  text: string;
  category: number;
}

const HEADING = 20;
const LEGEND = 20;
const SWATCH = 28;

/** What all panels have in common. */
export function frame(width: number, height: number): Plot.PlotOptions {
  return {
    width,
    height,
    marginLeft: 62,
    marginRight: 30,
    marginTop: 10,
    marginBottom: 32,
    style: { background: "transparent", fontSize: "12px" },
  };
}

/** Draws a panel's plot. */
export function plot(options: Plot.PlotOptions): SVGSVGElement & Plot.Plot {
  return Plot.plot(options) as SVGSVGElement & Plot.Plot;
}

/** Ticks that fit. */
export function ticks(width: number): number {
  return Math.max(3, Math.floor(width / 110));
}

export class Picture {
  readonly svg: SVGSVGElement;
  private readonly cursors: { panel: Panel; line: SVGLineElement }[] = [];

  constructor(id: string, title: string, panels: Panel[], legend: LegendItem[], width: number, theme: Theme) {
    this.svg = s("svg", { xmlns: "http://www.w3.org/2000/svg", width, class: "picture", role: "img" });
    this.svg.setAttribute("aria-label", title);
    this.svg.append(s("title", {}, title), hatches(id, legend, theme));
    let y = drawLegend(this.svg, id, legend, width);
    for (const panel of panels) {
      const text = s("text", { x: 0, y: y + 14, class: "heading", fill: "currentColor" });
      text.setAttribute("font-size", "13");
      text.setAttribute("font-weight", "600");
      text.append(s("title", {}, panel.heading), shorten(panel.heading, Math.floor(width / 7.6)));
      y += HEADING;
      const height = Number(panel.plot.getAttribute("height"));
      panel.plot.setAttribute("y", String(y));
      panel.plot.setAttribute("aria-hidden", "true");
      this.svg.append(text, panel.plot);
      if (panel.time) {
        const line = s("line", { y1: 0, y2: height - 32, stroke: "currentColor", "stroke-width": 1.5 });
        line.setAttribute("data-transient", "");
        line.setAttribute("pointer-events", "none");
        panel.plot.append(line);
        this.cursors.push({ panel, line });
      }
      y += height + 4;
    }
    this.svg.setAttribute("height", String(y));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${y}`);
  }

  /** Shows the moment of the playback. */
  setTime(time: number): void {
    for (const { panel, line } of this.cursors) {
      const x = String(panel.plot.scale("x")!.apply(time) as number);
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
    }
  }
}

/** The place in a panel's units, or null outside of its axes. */
export function placeIn(panel: Panel, event: { clientX: number; clientY: number }): [number, number] | null {
  const box = panel.plot.getBoundingClientRect();
  const outer = panel.plot.ownerSVGElement?.getBoundingClientRect() ?? box;
  const px = event.clientX - outer.left;
  const py = event.clientY - outer.top - Number(panel.plot.getAttribute("y") ?? 0);
  const [x, y] = [panel.plot.scale("x"), panel.plot.scale("y")];
  if (!x?.invert) return null;
  const [left, right] = x.range as [number, number];
  const height = Number(panel.plot.getAttribute("height"));
  if (px < left || px > right || py < 0 || py > height) return null;
  return [x.invert(px) as number, y?.invert ? (y.invert(py) as number) : NaN];
}

/** The fill of a category's areas, which differ in more than colour. */
export function hatch(id: string, category: number): string {
  return `url(#${id}-hatch-${category})`;
}

function hatches(id: string, legend: LegendItem[], theme: Theme): SVGDefsElement {
  const defs = s("defs");
  for (const category of new Set(legend.map((item) => item.category))) {
    const ink = colour(theme, category);
    const pattern = s("pattern", { id: `${id}-hatch-${category}`, width: 6, height: 6 });
    pattern.setAttribute("patternUnits", "userSpaceOnUse");
    const kind = HATCHES[category] ?? "solid";
    pattern.append(s("rect", { width: 6, height: 6, fill: ink, "fill-opacity": kind === "solid" ? 1 : 0.3 }));
    const stroke = { stroke: ink, "stroke-width": 1.6, fill: "none" };
    const paths: Record<string, string> = {
      diagonal: "M-1,1L1,-1M0,6L6,0M5,7L7,5",
      back: "M-1,5L1,7M0,0L6,6M5,-1L7,1",
      horizontal: "M0,3H6",
      vertical: "M3,0V6",
      cross: "M0,3H6M3,0V6",
      checks: "M0,1.5H3M3,4.5H6",
    };
    if (kind === "dots") pattern.append(s("circle", { cx: 3, cy: 3, r: 1.4, fill: ink }));
    else if (kind !== "solid") pattern.append(s("path", { d: paths[kind]!, ...stroke }));
    defs.append(pattern);
  }
  return defs;
}

function drawLegend(svg: SVGSVGElement, id: string, legend: LegendItem[], width: number): number {
  if (legend.length === 0) return 0;
  let x = 0;
  let y = 0;
  for (const { text, category } of legend) {
    const label = shorten(text, 34);
    const needed = SWATCH + label.length * 7.2 + 18;
    if (x > 0 && x + needed > width) {
      x = 0;
      y += LEGEND;
    }
    const swatch = s("rect", { x, y: y + 3, width: 22, height: 12, fill: hatch(id, category) });
    swatch.setAttribute("stroke", "currentColor");
    swatch.setAttribute("stroke-opacity", "0.5");
    const words = s("text", { x: x + SWATCH, y: y + 13, fill: "currentColor", "font-size": 12 }, label);
    words.append(s("title", {}, text));
    svg.append(swatch, words);
    x += needed;
  }
  return y + LEGEND + 6;
}

/** A density grid as a mark: the colour is that of the most frequent category, stronger where there are more. */
export function densityMark(grid: Density, x: Scale, y: Scale, theme: Theme): Plot.RenderableMark {
  const url = densityUrl(grid, theme);
  return Plot.rect([0], {
    x1: x.domain[0],
    x2: x.domain[1],
    y1: y.domain[0],
    y2: y.domain[1],
    render: (_index, _scales, values) => {
      const { x1, x2, y1, y2 } = values as unknown as Record<"x1" | "x2" | "y1" | "y2", ArrayLike<number>>;
      const image = s("image", { href: url, preserveAspectRatio: "none", class: "density" });
      image.setAttribute("style", "image-rendering: pixelated");
      image.setAttribute("x", String(Math.min(x1[0]!, x2[0]!)));
      image.setAttribute("y", String(Math.min(y1[0]!, y2[0]!)));
      image.setAttribute("width", String(Math.abs(x2[0]! - x1[0]!)));
      image.setAttribute("height", String(Math.abs(y2[0]! - y1[0]!)));
      return image;
    },
  });
}

function densityUrl(grid: Density, theme: Theme): string {
  const { columns, rows, categories, counts, most } = grid;
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d")!;
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = Array.from({ length: categories }, (_, c) => colour(theme, c));
  for (let cell = 0; cell < columns * rows; cell++) {
    const sum = sumOf(counts, cell, categories);
    if (sum === 0) continue;
    let best = 0;
    for (let c = 1; c < categories; c++) {
      if (counts[cell * categories + c]! > counts[cell * categories + best]!) best = c;
    }
    const alpha = Math.round(255 * (0.35 + (0.65 * Math.log1p(sum)) / Math.log1p(most)));
    const row = rows - 1 - Math.floor(cell / columns);
    pixels[row * columns + (cell % columns)] = rgba(colours[best]!, alpha);
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}
