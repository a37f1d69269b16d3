/** Where a cell of the image map lies: rows of equal length, in address order, seen through a zoom. */

export interface View {
  /** Pixels of one cell. */
  scale: number;
  /** Pixels from the left and top edge of the canvas to the first cell. */
  x: number;
  y: number;
}

/** How many cells a row has, so that the map has about the shape of the canvas; a power of two if possible. */
export function columnsFor(cells: number, width: number, height: number): number {
  const ideal = Math.sqrt((Math.max(1, cells) * width) / height);
  const power = 2 ** Math.round(Math.log2(ideal));
  return Math.max(1, Math.min(power, cells));
}

/** The view that shows all cells. */
export function fit(cells: number, columns: number, width: number, height: number): View {
  const rows = Math.max(1, Math.ceil(cells / columns));
  const scale = Math.min(width / columns, height / rows);
  return { scale, x: (width - scale * columns) / 2, y: (height - scale * rows) / 2 };
}

/** The cell at a pixel, or -1. */
export function cellAt(view: View, cells: number, columns: number, x: number, y: number): number {
  const column = Math.floor((x - view.x) / view.scale);
  const row = Math.floor((y - view.y) / view.scale);
  if (column < 0 || column >= columns || row < 0) return -1;
  const cell = row * columns + column;
  return cell < cells ? cell : -1;
}

/** Where the first pixel of a column or row is: that in which its edge lies. */
export function pixel(offset: number, scale: number, index: number): number {
  return Math.floor(offset + index * scale + 1e-6);
}

/**
 * For each pixel of a line, the first column or row that it shows, and the one behind its last; none where both
 * are equal. Cells smaller than a pixel belong to the pixel of their edge.
 */
export function spans(
  offset: number,
  scale: number,
  count: number,
  pixels: number,
): [Int32Array, Int32Array] {
  const from = new Int32Array(pixels);
  const to = new Int32Array(pixels);
  const clamp = (value: number): number => Math.max(0, Math.min(count, value));
  for (let p = 0; p < pixels; p++) {
    if (scale >= 1) {
      // The last one whose first pixel is at or before this one.
      const index = Math.floor((p + 1 - 2e-6 - offset) / scale);
      const inside = index >= 0 && index < count;
      from[p] = inside ? index : 0;
      to[p] = inside ? index + 1 : 0;
    } else {
      from[p] = clamp(Math.ceil((p - 1e-6 - offset) / scale));
      to[p] = clamp(Math.ceil((p + 1 - 1e-6 - offset) / scale));
    }
  }
  return [from, to];
}
