/** The result of a story: a sentence and a chart. They need no document, so that a file has the same chart. */
import type { Story } from "./model";
import { escapeXml, fixed, shorten } from "./text";

/** A shape of a chart; `look` is a class of the style below. */
export interface Shape {
  name: "rect" | "line" | "text";
  attributes: Record<string, string | number>;
  text?: string;
}

export interface Chart {
  width: number;
  height: number;
  shapes: Shape[];
}

const ROW = 30;
const BAR = 20;
/** Room for a time behind its bar. */
const TIME = 72;
/** Room of a letter. */
const LETTER = 8.4;
/** A narrower chart has its labels above the bars. */
const NARROW = 520;

export function sentence({ title, bars, after, before, to_limit }: Story): string {
  const [ours, other] = [bars[after]!, bars[before]!];
  const limit = to_limit === null ? "" : `, at ${to_limit.toFixed(2)} of the limit`;
  return `${title} in ${fixed(ours.seconds)} instead of ${fixed(other.seconds)} (${shorten(other.label, 40)})${limit}.`;
}

/** The bars from above to below, each with the limit that it has. */
export function chart({ bars }: Story, width: number): Chart {
  const isNarrow = width < NARROW;
  const letters = isNarrow ? Math.floor(width / LETTER) : 32;
  const labels = bars.map(({ label }) => shorten(label, letters));
  const left = isNarrow ? 0 : Math.ceil(Math.max(...labels.map((label) => label.length)) * LETTER) + 10;
  const longest = Math.max(1e-9, ...bars.map((bar) => bar.seconds));
  const length = (value: number): number => Math.max(2, ((width - left - TIME) * value) / longest);
  const row = isNarrow ? ROW + 16 : ROW;
  const over = isNarrow ? 2 : 5;
  const shapes = bars.flatMap((bar, i): Shape[] => {
    const top = row * i + (isNarrow ? 18 : 0);
    const label = isNarrow ? { x: 0, y: top - 5 } : { x: left - 10, y: top + 15, "text-anchor": "end" };
    const found: Shape[] = [
      { name: "text", attributes: label, text: labels[i]! },
      {
        name: "rect",
        attributes: {
          class: bar.is_ours ? "ours" : "other",
          x: left,
          y: top,
          width: round(length(bar.seconds)),
          height: BAR,
          rx: 2,
        },
      },
      {
        name: "text",
        attributes: { x: round(left + length(bar.seconds) + 8), y: top + 15 },
        text: fixed(bar.seconds),
      },
    ];
    if (bar.limit_s !== null && bar.limit_s <= longest) {
      const x = round(left + length(bar.limit_s));
      found.push({
        name: "line",
        attributes: { class: "limit", x1: x, x2: x, y1: top - over, y2: top + BAR + over },
      });
    }
    return found;
  });
  const bottom = row * bars.length + 8;
  const limits = new Set(bars.flatMap(({ limit_s }) => limit_s ?? []));
  if (limits.size === 0) return { width, height: bottom, shapes };
  const which = limits.size > 1 ? "the limit of each" : `the limit, ${fixed([...limits][0]!)}`;
  const words = `${which}: medium or program alone`;
  shapes.push(
    { name: "line", attributes: { class: "limit", x1: left, x2: left + 22, y1: bottom + 8, y2: bottom + 8 } },
    { name: "text", attributes: { class: "small", x: left + 30, y: bottom + 12 }, text: words },
  );
  return { width, height: bottom + 24, shapes };
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

const STYLE = `
text { font: 14px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 12px; fill: #59636e }
.other { fill: #8c959f } .ours { fill: #0969da }
.limit { stroke: #1f2328; stroke-width: 1.5; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 } .other { fill: #656c76 } .ours { fill: #4493f8 }
  .limit { stroke: #f0f6fc }
}
`;

/** The chart as a file of its own, below its sentence. */
export function chartFile(story: Story, width = 720): string {
  const { shapes, height } = chart(story, width);
  const about = linesOf(story.about, Math.floor(width / 6.2));
  const head = about.map(
    (line, i) => `<text class="small" x="0" y="${40 + 17 * i}">${escapeXml(line)}</text>`,
  );
  const top = 46 + 17 * about.length;
  const body = shapes.map(({ name, attributes, text }) => {
    const words = Object.entries(attributes).map(([key, value]) => ` ${key}="${value}"`);
    return `<${name}${words.join("")}>${escapeXml(text ?? "")}</${name}>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height + top}" role="img">`,
    `<title>${escapeXml(sentence(story))}</title>`,
    `<style>${STYLE}</style>`,
    `<text x="0" y="20">${escapeXml(sentence(story))}</text>`,
    ...head,
    `<g transform="translate(0 ${top})">`,
    ...body,
    "</g>",
    "</svg>",
    "",
  ].join("\n");
}

/** Parts that semicolons separate, in lines of at most so many letters. */
function linesOf(words: string, letters: number): string[] {
  const lines: string[] = [];
  for (const part of words.split("; ")) {
    const longer = lines.length > 0 ? `${lines[lines.length - 1]!}; ${part}` : part;
    if (lines.length > 0 && longer.length <= letters) lines[lines.length - 1] = longer;
    else lines.push(shorten(part, letters));
  }
  return lines.slice(0, 4);
}
