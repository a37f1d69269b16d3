/** Files that the page gives out: pictures and their data. */
import { s } from "./dom";
import { csv, type Table } from "./text";

/** Lets the browser save a file. */
export function save(name: string, type: string, parts: BlobPart[]): void {
  saveBlob(name, new Blob(parts, { type }));
}

function saveBlob(name: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export function saveCsv(name: string, table: Table): void {
  save(`${name}.csv`, "text/csv;charset=utf-8", csv(table));
}

/** A picture as a file of its own: with its background, and without what only the page shows. */
export function svgText(svg: SVGSVGElement): string {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  for (const transient of copy.querySelectorAll("[data-transient]")) transient.remove();
  const { backgroundColor, color } = getComputedStyle(svg);
  copy.setAttribute("style", `color: ${color}; font-family: system-ui, sans-serif`);
  copy.prepend(s("rect", { width: "100%", height: "100%", fill: backgroundColor }));
  return new XMLSerializer().serializeToString(copy);
}

export function saveSvg(name: string, svg: SVGSVGElement): void {
  save(`${name}.svg`, "image/svg+xml", [svgText(svg)]);
}

/** Draws a picture at twice its size. */
export async function savePng(name: string, svg: SVGSVGElement): Promise<void> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(svg))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = svg.width.baseVal.value * 2;
  canvas.height = svg.height.baseVal.value * 2;
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  saveCanvas(name, canvas);
}

export function saveCanvas(name: string, canvas: HTMLCanvasElement): void {
  canvas.toBlob((blob) => {
    if (blob) saveBlob(`${name}.png`, blob);
  }, "image/png");
}
