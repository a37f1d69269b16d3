/** The real program, and images that it makes. */
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { test, type TestAPI } from "vitest";

const BUILT = ["debug", "release"].map((kind) => resolve(`../target/${kind}/headstart`)).filter(existsSync);
BUILT.sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
const PROGRAM = process.env.HEADSTART ?? BUILT[0];
const PAGE = resolve("dist/report.html");
const ENVIRONMENT = { ...process.env, HEADSTART_REPORT_UI: PAGE };

/** A test that needs the program, and root where it mounts; skipped visibly without, and failed in CI. */
export function testWith(needs: { root: boolean }): TestAPI | TestAPI["skip"] {
  const lacks: string[] = [];
  if (PROGRAM === undefined) lacks.push("the program (cargo build, or HEADSTART)");
  if (needs.root && process.getuid?.() !== 0) lacks.push("root");
  for (const file of needs.root ? ["/dev/fuse", "/dev/loop-control", "/bin/busybox"] : []) {
    if (!existsSync(file)) lacks.push(file);
  }
  if (lacks.length === 0) return test;
  if (process.env.CI !== undefined) throw new Error(`missing: ${lacks.join(", ")}`);
  console.warn(`skipped without ${lacks.join(", ")}`);
  return test.skip;
}

export function folder(): string {
  return mkdtempSync(join(tmpdir(), "headstart-ui-"));
}

/** Runs the program to its end; fails when it does. */
export function run(...words: string[]): void {
  const ran = spawnSync(PROGRAM!, words, { env: ENVIRONMENT, encoding: "utf8", timeout: 600_000 });
  if (ran.status !== 0) throw new Error(`headstart ${words.join(" ")}: ${ran.stderr}`);
}

/** An image of a root with busybox and some files, whose names are hostile too. */
export function image(place: string): string {
  const root = join(place, "root");
  mkdirSync(join(root, "bin"), { recursive: true });
  if (existsSync("/bin/busybox")) {
    copyFileSync("/bin/busybox", join(root, "bin/busybox"));
    for (const name of ["sh", "cat"]) symlinkSync("busybox", join(root, "bin", name));
  }
  for (let i = 0; i < 40; i++) {
    const bytes = Buffer.alloc(60_000);
    for (let at = 0; at < bytes.length; at += 4)
      bytes.writeUInt32LE((Math.imul(at + i * 7919, 2654435761) >>> 0) >>> 3, at);
    writeFileSync(join(root, `file-${i}`), bytes);
  }
  writeFileSync(join(root, `<b>"日本语' file`), "hello\n");
  const path = join(place, "root.hsi");
  run("build", root, "-o", path, "--codec", "zstd:1");
  return path;
}

/** A server that runs, and where its page is. */
export interface Server {
  process: ChildProcess;
  /** What it said, one line an address. */
  said: string[];
  page: string;
  end: () => Promise<void>;
}

/** Starts a server in the foreground, and waits until it says where its live page is. */
export async function server(...words: string[]): Promise<Server> {
  const child = spawn(PROGRAM!, words, { env: ENVIRONMENT, stdio: ["ignore", "ignore", "pipe"] });
  const ended = new Promise<void>((done) => child.once("exit", () => done()));
  const said: string[] = [];
  let page = "";
  for await (const line of createInterface({ input: child.stderr })) {
    said.push(line);
    page = /^live page at (\S+)$/.exec(line)?.[1] ?? "";
    if (page !== "") break;
  }
  if (page === "") throw new Error(`headstart ${words.join(" ")}: ${said.join("\n")}`);
  child.stderr.resume();
  const end = async (): Promise<void> => {
    child.kill("SIGTERM");
    await ended;
  };
  return { process: child, said, page, end };
}
