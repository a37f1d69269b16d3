/** Numbers as text, and tables as CSV. */

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function count(value: number): string {
  return number.format(value);
}

function digits(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : 2);
}

export function seconds(value: number | null): string {
  if (value === null || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1 || size === 0) return `${digits(value)} s`;
  if (size >= 1e-3) return `${digits(value * 1e3)} ms`;
  return `${digits(value * 1e6)} µs`;
}

/** A time that is compared with others: always in seconds, unless it is small. */
export function fixed(value: number): string {
  return value >= 0.1 ? `${value.toFixed(2)} s` : seconds(value);
}

/** A ratio, or nothing where it says nothing. */
export function times(ratio: number): string {
  if (!Number.isFinite(ratio) || ratio <= 0) return "";
  const size =
    ratio >= 100 ? ratio.toFixed(0) : ratio >= 0.1 ? ratio.toFixed(2) : Number(ratio.toPrecision(2));
  return `×${size}`;
}

/** A figure with its ratio to another. */
export function withRatio(shown: string, ratio: number | null): string {
  const words = ratio === null ? "" : times(ratio);
  return words === "" ? shown : `${shown} (${words})`;
}

/** Text as XML. */
export function escapeXml(text: string): string {
  const names: Record<string, string> = { "&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos" };
  // XML has no place for control characters, nor for halves of pairs.
  return text
    .replace(/[^\t\n\r -\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd")
    .replace(/[&<>"']/g, (letter) => `&${names[letter]!};`);
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let size = value;
  while (Math.abs(size) >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit++;
  }
  return unit === 0 ? `${count(size)} B` : `${digits(size)} ${units[unit]!}`;
}

/** A value of the run summary, by the unit at the end of its name. */
export function measure(name: string, value: number | string | null): string {
  if (value === null) return "–";
  if (typeof value === "string") return value;
  if (name.endsWith("_s")) return seconds(value);
  if (name.endsWith("_bytes")) return bytes(value);
  if (name.endsWith("_kib")) return bytes(value * 1024);
  if (name.endsWith("_ratio")) return `${(value * 100).toFixed(1)} %`;
  return Number.isInteger(value) ? count(value) : value.toPrecision(4);
}

/** Figures whose own names say too little. */
const LABELS: Record<string, string> = {
  ready_s: "ready after",
  limit_s: "limit by this run alone",
  demand_wait_s: "waits for the medium, each moment once",
  store_requests: "requests to the medium",
  store_bytes: "read from the medium",
  demand_requests: "reads of the kernel",
  demand_bytes: "read by the kernel",
  demand_outside_bytes: "read outside the hot region",
  hot_bytes: "hot region",
  hot_compressed_bytes: "hot region, as stored",
  prefetch_bytes: "prefetched",
  prefetch_stream_bytes: "stream of the prefetch",
  prefetch_stream_s: "time of that stream",
  overdue_bytes: "prefetched later than the recorded start needed it",
  peak_rss_bytes: "memory of the server",
  end_reason: "why the prefetch ended",
  waited_requests: "requests that a program waits for",
  wall_s: "end of the command",
  image_bytes: "size of the image",
  logical_bytes: "size of the disk",
};

/** A name without its unit: `demand_wait_s` is "Demand wait". */
export function label(name: string): string {
  const words = LABELS[name] ?? name.replace(/_(s|bytes|kib|ratio)$/, "").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Shortens text in the middle. */
export function shorten(text: string, most: number): string {
  if (text.length <= most) return text;
  const half = Math.max(1, Math.floor((most - 1) / 2));
  return `${text.slice(0, half)}…${text.slice(text.length - half)}`;
}

export type CellValue = string | number | null;
export interface Table {
  columns: string[];
  rows: Iterable<CellValue[]>;
}

/** RFC 4180. In parts, since a million rows are too long for one string to build at once. */
export function csv(table: Table): string[] {
  const parts = [csvRow(table.columns)];
  let part: string[] = [];
  for (const row of table.rows) {
    part.push(csvRow(row));
    if (part.length === 50_000) {
      parts.push(part.join(""));
      part = [];
    }
  }
  parts.push(part.join(""));
  return parts;
}

function csvRow(values: readonly CellValue[]): string {
  const cells = values.map((value) => {
    if (value === null) return "";
    if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
    return /[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
  });
  return `${cells.join(",")}\r\n`;
}
