/** Writes the chart of a report's first story as a picture: `vite-node picture.ts -- REPORT.json FILE.svg`. */
import { readFileSync, writeFileSync } from "node:fs";
import type { Report } from "./src/model";
import { chartFile } from "./src/story";

const [report, picture] = process.argv.slice(-2) as [string, string];
const [story] = (JSON.parse(readFileSync(report, "utf8")) as Report).stories;
if (!story) throw new Error(`${report} has no story: make it from demo.json`);
writeFileSync(picture, chartFile(story));
