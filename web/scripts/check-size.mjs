// Fails if the build is too large to embed in the program, or if the content security policy would
// refuse it.
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

const MAX_BYTES = 300_000;
const MAX_FILES = 8;

const root = new URL('../dist/', import.meta.url).pathname;
const files = readdirSync(root, { recursive: true })
  .map((name) => join(root, name))
  .filter((path) => statSync(path).isFile());
const bytes = files.reduce((sum, path) => sum + statSync(path).size, 0);
for (const path of files) console.log(`${String(statSync(path).size).padStart(8)}  ${path.slice(root.length)}`);
console.log(`${String(bytes).padStart(8)}  in ${files.length} files, of ${MAX_BYTES} in ${MAX_FILES}`);

const page = readFileSync(join(root, 'index.html'), 'utf8');
const problems = [];
if (bytes > MAX_BYTES) problems.push(`more than ${MAX_BYTES} bytes`);
if (files.length > MAX_FILES) problems.push(`more than ${MAX_FILES} files`);
if (/<style|\sstyle=|<script(?![^>]*\ssrc=)/i.test(page)) problems.push('index.html has inline script or style');
if (/https?:\/\//i.test(page)) problems.push('index.html names another host');
for (const problem of problems) console.error(`dist: ${problem}`);
process.exit(problems.length === 0 ? 0 : 1);
