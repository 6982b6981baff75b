// Finds handlers of the page that never ran, from V8's coverage counts. This includes buttons that
// never came into view and keys that were never pressed. The program serves minified code; the
// source map of a second build of the same page maps it to the source.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { TraceMap, allGeneratedPositionsFor } from "@jridgewell/trace-mapping";

const web = new URL("../web/", import.meta.url).pathname;
const ts = createRequire(path.join(web, "package.json"))("typescript");

/**
 * Returns the places in the source that must run: handlers of components, and keys of the lists.
 */
function wanted() {
  const found = [];
  const directory = path.join(web, "src/ui");
  for (const file of fs.readdirSync(directory).sort()) {
    const text = fs.readFileSync(path.join(directory, file), "utf8");
    const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true, file.endsWith("x") ? ts.ScriptKind.TSX : ts.ScriptKind.TS);
    const want = (node, what) => {
      const from = source.getLineAndCharacterOfPosition(node.getStart(source));
      const to = source.getLineAndCharacterOfPosition(node.getEnd());
      found.push({ file: `src/ui/${file}`, from, to, what });
    };
    const visit = (node) => {
      if (ts.isJsxAttribute(node) && /^on[A-Z]/.test(node.name.getText(source)) && node.initializer && ts.isJsxExpression(node.initializer)) {
        const handler = node.initializer.expression;
        if (handler && ts.isArrowFunction(handler)) want(firstOf(handler.body), node.name.getText(source));
      }
      if (file === "list-keys.ts" && ts.isCaseClause(node)) {
        const first = node.statements.map(firstOf)[0];
        if (first && !ts.isBreakStatement(first)) want(first, node.getText(source).split("\n")[0]);
      }
      ts.forEachChild(node, visit);
    };
    visit(source);
  }
  return found;
}

/** Returns the first statement in nested blocks, or the node itself if it is no block. */
function firstOf(node) {
  return ts.isBlock(node) ? firstOf(node.statements[0]) : node;
}

export class Ran {
  #entries = [];

  async begin(page) {
    await page.coverage.startJSCoverage({ resetOnNavigation: false });
  }

  /**
   * Collects the counts. Call it before the page navigates, because the counts end with its
   * process.
   */
  async end(page) {
    this.#entries.push(...(await page.coverage.stopJSCoverage()));
  }

  /** Returns what has not run. `built` is the folder of the build with the source map. */
  faults(built) {
    const assets = path.join(built, "assets");
    const name = fs.readdirSync(assets).find((file) => /^index-.*\.js$/.test(file));
    const text = fs.readFileSync(path.join(assets, name), "utf8");
    const map = new TraceMap(JSON.parse(fs.readFileSync(path.join(assets, `${name}.map`), "utf8")));
    const entries = this.#entries.filter((entry) => entry.source === text);
    if (entries.length === 0) return [`the program serves another page than that of web/src (${name}): make build`];
    const starts = [0];
    for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
    const ran = (offset) => entries.some((entry) => countAt(entry, offset) > 0);
    const faults = [];
    for (const { file, from, to, what } of wanted()) {
      const source = map.sources.find((one) => one?.endsWith(file));
      const at = offsets(map, source, from, to).map(({ line, column }) => starts[line - 1] + column);
      const shown = `web/${file}:${from.line + 1}: ${what}`;
      if (at.length === 0) faults.push(`${shown} is not in the source map`);
      else if (!at.some(ran)) faults.push(`${shown} was never used`);
    }
    return faults;
  }
}

/** Returns the generated positions of the first mapped token in a range of the source. */
function offsets(map, source, from, to) {
  for (let line = from.line; line <= to.line; line += 1) {
    const begin = line === from.line ? from.character : 0;
    const end = line === to.line ? to.character : 200;
    for (let column = begin; column <= end; column += 1) {
      const found = allGeneratedPositionsFor(map, { source, line: line + 1, column });
      if (found.length > 0) return found;
    }
  }
  return [];
}

/** Returns how often the innermost block around an offset has run. */
function countAt(entry, offset) {
  let size = Infinity;
  let count = 0;
  for (const each of entry.functions) {
    for (const range of each.ranges) {
      if (range.startOffset > offset || offset >= range.endOffset || range.endOffset - range.startOffset >= size) continue;
      size = range.endOffset - range.startOffset;
      count = range.count;
    }
  }
  return count;
}
