/** Points of requests in a panel: single ones with shapes while they are few, density when they are many. */
import * as Plot from "@observablehq/plot";
import { density, position, sumOf, type Density, type Scale } from "../bins";
import { CATEGORIES, colour, SHAPES, type Theme } from "../palette";
import { densityMark, frame, plot, type Panel } from "../picture";
import { count } from "../text";

/** With more points than this, single ones cannot be told apart. */
const FEW = 1500;

export interface PointsPanel {
  heading: string;
  width: number;
  height: number;
  theme: Theme;
  time: boolean;
  x: Scale;
  y: Scale;
  xAxis: Plot.ScaleOptions;
  yAxis: Plot.ScaleOptions;
  chosen: Uint32Array;
  xOf: (i: number) => number;
  yOf: (i: number) => number;
  category: (i: number) => number;
  marks: Plot.Markish[];
  /** A place in words. */
  place: (x: number, y: number) => string;
  names: (category: number) => string;
}

export function pointsPanel(spec: PointsPanel): Panel {
  const { width, height, theme, chosen, xOf, yOf } = spec;
  const base = frame(width, height);
  const columns = Math.max(20, Math.floor((width - 92) / 2));
  const rows = Math.max(20, Math.floor((height - 42) / 2));
  const points = { chosen, x: xOf, y: yOf, category: spec.category, categories: CATEGORIES };
  const grid = density(points, spec.x, spec.y, columns, rows);
  const marks: Plot.Markish[] = [Plot.frame({ strokeOpacity: 0.3 }), ...spec.marks];
  if (chosen.length <= FEW) {
    for (let category = 0; category < CATEGORIES; category++) {
      const own = Array.from(chosen).filter((i) => spec.category(i) === category);
      if (own.length === 0) continue;
      const symbol = SHAPES[category] ?? "circle";
      const stroke = colour(theme, category);
      marks.push(
        Plot.dot(own, { x: xOf, y: yOf, symbol, stroke, fill: stroke, fillOpacity: 0.3, r: 2.5, clip: true }),
      );
    }
  } else {
    marks.push(densityMark(grid, spec.x, spec.y, theme));
  }
  const svg = plot({
    ...base,
    x: { grid: true, ...axis(spec.x), ...spec.xAxis },
    y: { grid: true, ...axis(spec.y), ...spec.yAxis },
    marks,
  });
  return { heading: spec.heading, plot: svg, time: spec.time, describe: describer(spec, grid) };
}

function axis(scale: Scale): Plot.ScaleOptions {
  const options: Plot.ScaleOptions = { type: scale.type, domain: scale.domain };
  if (scale.linear !== undefined) options.constant = scale.linear;
  return options;
}

function describer(spec: PointsPanel, grid: Density): (x: number, y: number) => string {
  const [atX, atY] = [position(spec.x), position(spec.y)];
  return (x, y) => {
    const column = Math.max(0, Math.min(grid.columns - 1, Math.floor(atX(x) * grid.columns)));
    // A few cells around the pointer; the whole column for the keyboard, which has no height.
    const near: number[] = [];
    const row = Math.floor(atY(y) * grid.rows);
    const [low, high] = Number.isNaN(y) ? [0, grid.rows - 1] : [row - 1, row + 1];
    for (let r = Math.max(0, low); r <= Math.min(grid.rows - 1, high); r++) {
      for (let c = Math.max(0, column - 1); c <= Math.min(grid.columns - 1, column + 1); c++) {
        near.push(r * grid.columns + c);
      }
    }
    const parts: string[] = [];
    for (let category = 0; category < grid.categories; category++) {
      const own = near.reduce((sum, cell) => sum + grid.counts[cell * grid.categories + category]!, 0);
      if (own > 0) parts.push(`${count(own)} ${spec.names(category)}`);
    }
    const total = near.reduce((sum, cell) => sum + sumOf(grid.counts, cell, grid.categories), 0);
    return `${spec.place(x, y)}: ${total === 0 ? "no requests" : parts.join(", ")}`;
  };
}
