import { start } from "./app";
import { decodeReport } from "./data";
import { h } from "./dom";
import { startLive } from "./live/page";
import type { Report } from "./model";
import "./style.css";

async function main(): Promise<void> {
  const root = document.getElementById("app")!;
  const holder = document.getElementById("data")!;
  try {
    const report = JSON.parse(holder.textContent) as Report | { live: number } | null;
    holder.textContent = "";
    if (report === null) {
      root.replaceChildren(
        h("h1", {}, "headstart report"),
        h(
          "p",
          { class: "empty" },
          "This page has no data. Make one that has: headstart report INPUT -o report.html",
        ),
      );
    } else if ("live" in report) {
      startLive(root);
    } else {
      root.replaceChildren(h("p", { class: "empty", role: "status" }, "Reading the data…"));
      start(root, await decodeReport(report));
    }
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    root.replaceChildren(
      h("h1", {}, "headstart report"),
      h(
        "p",
        { class: "error", role: "alert" },
        `The data of this page cannot be read: ${reason}. Write the report again.`,
      ),
    );
  }
  document.documentElement.dataset.ready = "true";
}

void main();
