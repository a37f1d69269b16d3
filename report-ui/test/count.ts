/** Ends a run of tests with a line that scripts can read. */
import type { Reporter, TestModule } from "vitest/node";

export default class Count implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    let passed = 0;
    let failed = 0;
    for (const module of modules) {
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        passed += Number(state === "passed");
        failed += Number(state === "failed");
      }
      failed += module.errors().length;
    }
    console.log(`${passed} passed, ${failed} failed`);
  }
}
