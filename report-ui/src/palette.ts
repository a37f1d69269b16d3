/** Colours that people of all colour visions tell apart (after Okabe and Ito), each with a second cue. */
import type { State } from "./blocks";

export type Theme = "light" | "dark";

const OKABE: Record<Theme, readonly string[]> = {
  light: ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#5b3a8c", "#444444"],
  dark: ["#ff8f4d", "#4fb0f0", "#2fd6a3", "#f0a3cb", "#f0c040", "#9bdcff", "#b69af0", "#c8c8c8"],
};

/** The second cue of a category: how its areas are hatched, and the shape of its points. */
export const HATCHES = [
  "solid",
  "diagonal",
  "dots",
  "horizontal",
  "cross",
  "vertical",
  "back",
  "checks",
] as const;
export const SHAPES = ["circle", "triangle", "square", "diamond", "star", "wye", "cross", "circle"] as const;

/** The colour of a category; the last is of all others. */
export function colour(theme: Theme, category: number): string {
  return OKABE[theme][Math.min(category, 7)]!;
}

export const CATEGORIES = 8;

interface Look {
  light: readonly [string, string];
  dark: readonly [string, string];
  /** Eight rows of eight: where the second colour is. */
  texture: readonly string[];
}

const PLAIN = Array<string>(8).fill("........");
const DIAGONAL = Array.from({ length: 8 }, (_, y) =>
  Array.from({ length: 8 }, (_, x) => ((x + y) % 4 === 0 ? "#" : ".")).join(""),
);
const GRID = Array.from({ length: 8 }, (_, y) => (y % 4 === 0 ? "########" : "#...#..."));
const STRIPES = Array.from({ length: 8 }, (_, y) => (y % 4 === 0 ? "########" : "........"));
const CHECKS = Array.from({ length: 8 }, (_, y) =>
  Array.from({ length: 8 }, (_, x) => (((x >> 1) + (y >> 1)) % 2 ? "#" : ".")).join(""),
);
const DOTS = Array.from({ length: 8 }, (_, y) => (y % 4 === 1 ? ".#...#.." : "........"));
const COLUMNS = Array.from({ length: 8 }, () => "#...#...");
const SPARSE = Array.from({ length: 8 }, (_, y) => (y === 3 ? "...#...." : "........"));

/** How each state of the image map looks: two colours and a texture. */
export const LOOKS: Record<State, Look> = {
  cold: { light: ["#dfe3e8", "#dfe3e8"], dark: ["#333a43", "#333a43"], texture: PLAIN },
  zero: { light: ["#f7f8fa", "#b4bac2"], dark: ["#1c2128", "#59626d"], texture: SPARSE },
  hot: { light: ["#cfc4a8", "#8a7f63"], dark: ["#5f573f", "#a89c76"], texture: DOTS },
  written: { light: ["#cc79a7", "#7d3f63"], dark: ["#f0a3cb", "#8c4d6e"], texture: COLUMNS },
  unused: { light: ["#f0c419", "#7a6000"], dark: ["#f0c040", "#6b5400"], texture: STRIPES },
  prefetched: { light: ["#8cc8f0", "#0072b2"], dark: ["#2d6f9e", "#9bdcff"], texture: DIAGONAL },
  cached: { light: ["#4d9fd8", "#004f80"], dark: ["#2f86c0", "#cfeaff"], texture: GRID },
  used: { light: ["#0072b2", "#0072b2"], dark: ["#4fb0f0", "#4fb0f0"], texture: PLAIN },
  read: { light: ["#d55e00", "#ffb27a"], dark: ["#ff8f4d", "#7a3300"], texture: DOTS },
  late: { light: ["#5c0f3c", "#f2a6d2"], dark: ["#f5c6e2", "#8a1c5c"], texture: CHECKS },
};

/** A colour `#rrggbb` as a pixel of `ImageData`. */
export function rgba(hex: string, alpha = 255): number {
  const value = parseInt(hex.slice(1), 16);
  const [red, green, blue] = [value >> 16, (value >> 8) & 255, value & 255];
  return ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
