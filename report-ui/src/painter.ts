/** Draws the states of cells into a canvas, pixel by pixel; a change repaints only the pixels of its cell. */
import { STATES } from "./blocks";
import { pixel, spans, type View } from "./layout";
import { LOOKS, rgba, type Theme } from "./palette";

/** Cells of this size and more have gaps between them. */
const GAP_FROM = 6;

export class Painter {
  view: View = { scale: 1, x: 0, y: 0 };
  private image: ImageData;
  private pixels: Uint32Array;
  /** The state of each pixel and 1; 0 where no cell is. */
  private shown: Uint8Array;
  private readonly colours = new Uint32Array(STATES.length * 64);

  constructor(
    readonly canvas: HTMLCanvasElement,
    readonly cells: number,
    readonly columns: number,
  ) {
    this.image = new ImageData(1, 1);
    this.pixels = new Uint32Array(1);
    this.shown = new Uint8Array(1);
  }

  resize(width: number, height: number): void {
    this.canvas.width = width;
    this.canvas.height = height;
    this.image = new ImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.shown = new Uint8Array(width * height);
  }

  setTheme(theme: Theme): void {
    STATES.forEach((state, index) => {
      const { texture, [theme]: colours } = LOOKS[state];
      for (let i = 0; i < 64; i++) {
        this.colours[index * 64 + i] = rgba(colours[texture[i >> 3]![i & 7] === "#" ? 1 : 0]);
      }
    });
  }

  /** Paints everything. */
  paint(states: Uint8Array): void {
    const { width, height } = this.canvas;
    const { scale, x, y } = this.view;
    const rows = Math.ceil(this.cells / this.columns);
    const [left, right] = spans(x, scale, this.columns, width);
    const [top, bottom] = spans(y, scale, rows, height);
    const line = new Uint8Array(width);
    for (let py = 0; py < height; py++) {
      line.fill(0);
      for (let row = top[py]!; row < bottom[py]!; row++) {
        const base = row * this.columns;
        const rest = this.cells - base;
        for (let px = 0; px < width; px++) {
          let most = line[px]!;
          const end = Math.min(right[px]!, rest);
          for (let column = left[px]!; column < end; column++) {
            const state = states[base + column]! + 1;
            if (state > most) most = state;
          }
          line[px] = most;
        }
      }
      for (let px = 0; px < width; px++) this.set(px, py, line[px]!);
    }
    if (scale >= GAP_FROM) this.gaps(left, top);
  }

  /** Clears the last column and row of pixels of each cell. */
  private gaps(left: Int32Array, top: Int32Array): void {
    const { width, height } = this.canvas;
    for (let py = 0; py < height; py++) {
      const isEdge = top[py] !== top[py + 1];
      for (let px = 0; px < width; px++) if (isEdge || left[px] !== left[px + 1]) this.set(px, py, 0);
    }
  }

  private set(px: number, py: number, shown: number): void {
    const at = py * this.canvas.width + px;
    this.shown[at] = shown;
    this.pixels[at] = shown === 0 ? 0 : this.colours[(shown - 1) * 64 + (py & 7) * 8 + (px & 7)]!;
  }

  /** Paints a cell whose state has risen. */
  change(cell: number, state: number): void {
    const { scale, x, y } = this.view;
    const column = cell % this.columns;
    const row = (cell - column) / this.columns;
    const { width, height } = this.canvas;
    const gap = scale >= GAP_FROM ? 1 : 0;
    const left = pixel(x, scale, column);
    const top = pixel(y, scale, row);
    const right = scale < 1 ? left + 1 : pixel(x, scale, column + 1) - gap;
    const bottom = scale < 1 ? top + 1 : pixel(y, scale, row + 1) - gap;
    for (let py = Math.max(0, top); py < Math.min(bottom, height); py++) {
      for (let px = Math.max(0, left); px < Math.min(right, width); px++) {
        if (this.shown[py * width + px]! <= state) this.set(px, py, state + 1);
      }
    }
  }

  /** Brings what was painted to the screen. */
  flush(): void {
    this.canvas.getContext("2d")!.putImageData(this.image, 0, 0);
  }
}

/** A sample of a state for a legend. */
export function sample(state: number, theme: Theme): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  const painter = new Painter(canvas, 1, 1);
  painter.resize(24, 14);
  painter.setTheme(theme);
  painter.view = { scale: 100, x: -20, y: -20 };
  painter.change(0, state);
  painter.flush();
  return canvas;
}
