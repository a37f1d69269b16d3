/** Chromium for tests. */
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import puppeteer, { type Browser, type Page } from "puppeteer-core";

export const OUT = resolve("out");
mkdirSync(OUT, { recursive: true });

/**
 * Milliseconds for one answer of the browser. A machine with other work may take long for anything, but
 * Chromium has also lost a call for good: then an error names the call, and the test is tried again.
 */
const PATIENCE = 120_000;

export function launch(): Promise<Browser> {
  const known = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  const executablePath = process.env.CHROMIUM ?? known.find((path) => existsSync(path));
  if (executablePath === undefined)
    throw new Error("Chromium is missing: apt install chromium, or set CHROMIUM");
  const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  return puppeteer.launch({ executablePath, args, timeout: PATIENCE, protocolTimeout: PATIENCE });
}

/** Opens a page, waits for its data, and gathers its errors. */
export async function open(
  browser: Browser,
  file: string,
  width: number,
  dark = false,
): Promise<[Page, string[]]> {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }]);
  const session = await page.createCDPSession();
  await session.send("Browser.setDownloadBehavior", {
    behavior: "allow",
    downloadPath: OUT,
    eventsEnabled: true,
  });
  await page.goto(file.startsWith("/") ? `file://${file}` : file);
  await page.waitForSelector("[data-ready]");
  return [page, errors];
}

/**
 * Scrolls through all views, so that each is drawn. Views that are drawn above one may push it away again.
 * A page that another one covers would never draw.
 */
export async function drawAll(page: Page): Promise<void> {
  await page.bringToFront();
  for (const id of await page.$$eval("section:not([hidden])", (all) => all.map((each) => each.id))) {
    await page.waitForFunction(
      (selector) => {
        const element = document.querySelector<HTMLElement>(selector)!;
        element.scrollIntoView();
        return element.dataset.drawn;
      },
      { polling: 50 },
      `#${id}`,
    );
  }
  await page.evaluate(() => scrollTo(0, 0));
}

/** Presses a button that saves a file, and gives the file's text. */
export async function saved(page: Page, view: string, button: string, file: string): Promise<Buffer> {
  const path = join(OUT, file);
  const session = await page.createCDPSession();
  const done = new Promise<void>((finished) => {
    session.on("Browser.downloadProgress", (event) => event.state === "completed" && finished());
  });
  await session.send("Browser.setDownloadBehavior", {
    behavior: "allow",
    downloadPath: OUT,
    eventsEnabled: true,
  });
  rmSync(path, { force: true });
  await page.$eval(
    `#${view} .tools`,
    (tools, text) =>
      Array.from(tools.querySelectorAll("button"))
        .find((each) => each.textContent === text)!
        .click(),
    button,
  );
  await done;
  await session.detach();
  return readFileSync(path);
}
