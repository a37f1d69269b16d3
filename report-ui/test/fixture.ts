/** Reports for tests and the benchmark, and pages that have them. */
import { readFileSync, writeFileSync } from "node:fs";
import { deflateSync } from "node:zlib";
import type { Bar, Column, Input, Report, Story, Texts } from "../src/model";

export function column(type: Column["type"], values: ArrayLike<number>): Column {
  const array = { u8: Uint8Array, u32: Uint32Array, f32: Float32Array, f64: Float64Array }[type].from(values);
  const data = deflateSync(Buffer.from(array.buffer), { level: 1 }).toString("base64");
  return { type, count: values.length, data };
}

/** A generator of numbers from 0 to 1 that is the same everywhere (mulberry32). */
function generator(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export function texts(values: string[]): Texts {
  return { count: values.length, data: deflateSync(JSON.stringify(values)).toString("base64") };
}

export const HOSTILE = `<script>window.hacked=1</script><img src=x onerror="window.hacked=2">"' Ünïcødé 日本語 العربية`;

function input(
  name: string,
  count: number,
  blocks: number,
  seconds: number,
  ahead: number,
  seed: number,
): Input {
  const random = generator(seed);
  const rows = {
    at: [],
    block: [],
    blocks: [],
    wait: [],
    service: [],
    kind: [],
    process: [],
    part: [],
  } as Record<string, number[]>;
  for (let i = 0; i < count; i++) {
    const isAhead = random() < ahead;
    rows.at!.push((i / count) * seconds);
    const first = Math.floor(isAhead ? (i / count) * blocks * 0.5 : random() ** 2 * (blocks - 64));
    rows.block!.push(first);
    rows.blocks!.push(1 + Math.floor(random() * (isAhead ? 32 : 8)));
    rows.wait!.push(random() < 0.3 ? random() * 0.01 : 0);
    rows.service!.push(0.0002 * 10 ** (random() * 2));
    rows.kind!.push(isAhead ? 1 : 0);
    rows.process!.push(Math.floor(random() * 3));
    rows.part!.push(0);
  }
  return {
    name,
    kind: "profile",
    command: `run ${HOSTILE}`,
    medium: "hdd-7200",
    disk: 0,
    ready_s: seconds * 0.8,
    ended_s: seconds,
    requests: {
      at_s: column("f64", rows.at!),
      block: column("u32", rows.block!),
      blocks: column("u32", rows.blocks!),
      wait_s: column("f32", rows.wait!),
      service_s: column("f32", rows.service!),
      kind: column("u8", rows.kind!),
      kinds: ["demand", "prefetch"],
      process: column("u32", rows.process!),
      part: column("u8", rows.part!),
      processes: [
        { name: "init", pid: 1 },
        { name: HOSTILE, pid: 77 },
        { name: "", pid: null },
      ],
    },
    stages: [{ name: "open the image", from_s: 0, to_s: seconds * 0.1 }],
    stage_files: {
      stages: texts(["boot loader", "boot loader", HOSTILE]),
      files: texts(["/boot/vmlinuz", "", `/${HOSTILE}`]),
      first_s: column("f64", [0, 0.1, 0.2]),
      last_s: column("f64", [0.1, 0.1, seconds]),
      requests: column("f64", [3, 1, 7]),
      bytes: column("f64", [3 * 2 ** 20, 2048, 8192]),
      unique_blocks: column("f64", [768, 1, 1]),
      busy_s: column("f64", [0.5, 0, 1]),
    },
    lives: [
      { process: { name: "init", pid: 1 }, parent: 0, from_s: 0, to_s: seconds * 0.9, cpu_s: seconds * 0.2 },
      { process: { name: HOSTILE, pid: 77 }, parent: 1, from_s: seconds * 0.3, to_s: seconds, cpu_s: null },
    ],
    cpu: Array.from({ length: 40 }, (_, i) => ({
      from_s: (i / 40) * seconds,
      to_s: ((i + 1) / 40) * seconds,
      cpu_s: ((1 + Math.sin(i / 3)) * seconds) / 40,
    })),
    summary: { demand_wait_s: seconds / 3, store_bytes: count * 4096 },
    notes: [`a note: ${HOSTILE}`],
  };
}

/** A program that starts: each of the inputs, and one that has no input. */
function story(inputs: Input[]): Story {
  const bars: Bar[] = inputs.map(({ name, ready_s }, input) => {
    return { label: name, seconds: ready_s!, limit_s: 2, is_ours: input === 1, input };
  });
  const raw = { label: HOSTILE, seconds: 19, limit_s: null, is_ours: false, input: null };
  return {
    title: "A program starts",
    about: `${HOSTILE}; medians`,
    bars: [raw, ...bars],
    after: 2,
    before: 1,
    to_limit: 1.2,
  };
}

export function report(counts: number[] = [1200, 4000], blocks = 60_000): Report {
  const runs = (first: number[], count: number[]) => ({
    first: column("u32", first),
    count: column("u32", count),
  });
  const quarter = Math.floor(blocks / 4);
  const inputs = counts.map((count, i) =>
    input(`start-${i}.hsp`, count, blocks, 4 - i, i === 0 ? 0 : 0.5, 7 + i),
  );
  return {
    version: 4,
    generator: "headstart test",
    disks: [
      {
        name: "disk",
        blocks,
        window_blocks: 32,
        hot: { runs: runs([0], [quarter]), chunk: column("u32", [0]), needed_s: column("f32", [0.5]) },
        zero: runs([3 * quarter], [quarter]),
        files: {
          paths: texts([`/${HOSTILE}`, "/usr/bin/node"]),
          runs: runs([0, quarter], [quarter, quarter]),
          path: column("u32", [0, 1]),
        },
      },
    ],
    inputs,
    stories: counts.length > 1 ? [story(inputs)] : [],
    experiments: [
      {
        name: "seek-2005",
        parameters: "one disk",
        engine: "queue",
        figures: [
          {
            name: "start",
            value: 12.5,
            off: 30,
            published: "13 s",
            source: "table 2",
            ratio: 0.96,
            kind: null,
            verdict: "pass",
            target: "at most 13",
            note: null,
          },
          {
            name: HOSTILE,
            value: 3,
            off: null,
            published: null,
            source: null,
            ratio: null,
            kind: null,
            verdict: "miss",
            target: null,
            note: "why",
          },
        ],
      },
    ],
  };
}

export const MARKER = `<script id="data" type="application/json">null</script>`;

/** Writes a page with data, as the program does. */
export function writePage(path: string, data: unknown): void {
  const template = readFileSync(new URL("../dist/report.html", import.meta.url), "utf8");
  const parts = template.split(MARKER);
  if (parts.length !== 2) throw new Error("the page must have the marker for its data once");
  const json = JSON.stringify(data).replaceAll("<", "\\u003c");
  writeFileSync(path, parts.join(MARKER.replace("null", () => json)));
}
