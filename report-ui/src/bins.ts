/** Many points become few cells: scales, density grids, and sums over time. */

/** A scale from values to 0..1. `symlog` is linear below `linear`, and logarithmic in both directions beyond. */
export interface Scale {
  type: "linear" | "log" | "symlog";
  domain: [number, number];
  linear?: number;
}

function bend(scale: Scale, value: number): number {
  if (scale.type === "log") return Math.log(value);
  if (scale.type === "symlog") return Math.sign(value) * Math.log1p(Math.abs(value / (scale.linear ?? 1)));
  return value;
}

/** Where a value lies, as a function that is fast to call. */
export function position(scale: Scale): (value: number) => number {
  const low = bend(scale, scale.domain[0]);
  const width = bend(scale, scale.domain[1]) - low;
  if (scale.type === "linear") return (value) => (value - low) / width;
  return (value) => (bend(scale, value) - low) / width;
}

/** How many points fall into each cell, by category. Row 0 has the lowest values. */
export interface Density {
  columns: number;
  rows: number;
  categories: number;
  /** `counts[(row * columns + column) * categories + category]` */
  counts: Uint32Array;
  most: number;
  total: number;
}

export interface Points {
  chosen: Uint32Array;
  x: (i: number) => number;
  y: (i: number) => number;
  category: (i: number) => number;
  categories: number;
}

export function density(points: Points, x: Scale, y: Scale, columns: number, rows: number): Density {
  const { categories } = points;
  const counts = new Uint32Array(columns * rows * categories);
  const atX = position(x);
  const atY = position(y);
  let total = 0;
  for (const i of points.chosen) {
    const px = atX(points.x(i));
    const py = atY(points.y(i));
    if (!(px >= 0 && px <= 1 && py >= 0 && py <= 1)) continue;
    const column = Math.min(Math.floor(px * columns), columns - 1);
    const row = Math.min(Math.floor(py * rows), rows - 1);
    counts[(row * columns + column) * categories + points.category(i)]!++;
    total++;
  }
  let most = 0;
  for (let cell = 0; cell < columns * rows; cell++) most = Math.max(most, sumOf(counts, cell, categories));
  return { columns, rows, categories, counts, most, total };
}

/** All points of a cell. */
export function sumOf(counts: Uint32Array, cell: number, categories: number): number {
  let sum = 0;
  for (let c = 0; c < categories; c++) sum += counts[cell * categories + c]!;
  return sum;
}

/** Amounts spread evenly over intervals of time, summed in bins of equal width. */
export class Spread {
  private readonly edges: Float64Array;
  private readonly slopes: Float64Array;

  constructor(
    private readonly from: number,
    private readonly width: number,
    private readonly bins: number,
  ) {
    this.edges = new Float64Array(bins);
    this.slopes = new Float64Array(bins + 1);
  }

  /** Adds an amount that comes evenly from `start` to `end`. What lies outside is cut off. */
  add(start: number, end: number, amount: number): void {
    const { bins } = this;
    let a = (start - this.from) / this.width;
    let b = (end - this.from) / this.width;
    if (b < 0 || a >= bins) return;
    if (b - a < 1e-9) {
      if (a >= 0) this.edges[Math.floor(a)]! += amount;
      return;
    }
    const each = amount / (b - a);
    a = Math.max(a, 0);
    b = Math.min(b, bins);
    const first = Math.floor(a);
    const last = Math.min(Math.floor(b), bins - 1);
    if (first === last) {
      this.edges[first]! += each * (b - a);
      return;
    }
    this.edges[first]! += each * (first + 1 - a);
    this.edges[last]! += each * (b - last);
    this.slopes[first + 1]! += each;
    this.slopes[last]! -= each;
  }

  /** The amount of each bin. */
  sums(): Float64Array {
    let running = 0;
    return this.edges.map((edge, bin) => {
      running += this.slopes[bin]!;
      return edge + running;
    });
  }
}

/** The times in which at least one of the intervals is open, in order. `starts` and `ends` need no order. */
export function union(starts: Float64Array, ends: Float64Array): [number, number][] {
  starts.sort();
  ends.sort();
  const found: [number, number][] = [];
  let open = 0;
  let since = 0;
  for (let s = 0, e = 0; e < ends.length;) {
    if (s < starts.length && starts[s]! <= ends[e]!) {
      if (open++ === 0) since = starts[s]!;
      s++;
    } else {
      if (--open === 0) found.push([since, ends[e]!]);
      e++;
    }
  }
  return found;
}
