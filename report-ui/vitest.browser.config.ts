import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/browser/**/*.test.ts"],
    reporters: ["default", "./test/count.ts"],
    fileParallelism: false,
    testTimeout: 600_000,
    // For calls that Chromium never answers: see `PATIENCE`.
    retry: 2,
    hookTimeout: 600_000,
  },
});
