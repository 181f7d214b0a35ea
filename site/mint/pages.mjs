// What the scripts of this folder share. Each takes a website folder, prints one line of JSON with a list `problems`
// of {page, line, message}, and exits with 0 when it could look at everything, whatever it found.
import fs from 'node:fs';
import path from 'node:path';

/** The website folder that the script was given. */
export const website = path.resolve(process.argv[2] ?? '.');

// Libraries talk to the terminal; stdout is for the report.
export const said = [];
for (const name of ['log', 'warn', 'error', 'info', 'debug']) console[name] = (...words) => said.push(words.join(' '));

/** The names of all pages, as paths from the website folder, in order. */
export function pages() {
  const files = fs.readdirSync(website, { recursive: true, withFileTypes: true }).filter((each) => each.isFile());
  const names = files.map((each) => relative(path.join(each.parentPath, each.name)));
  return names.filter((name) => name.endsWith('.mdx')).sort();
}

/** A path below the website folder as pages are named: from that folder, with forward slashes. */
export function relative(file) {
  return posix(path.relative(website, path.resolve(website, file)));
}

function posix(name) {
  return name.split(path.sep).join('/');
}

/** A page's text in two parts; the frontmatter's lines stay in the body as empty ones, so that lines count as on disk. */
export function read(page) {
  const text = fs.readFileSync(path.join(website, page), 'utf8');
  const frontmatter = /^---\n([\s\S]*?)\n---\n/.exec(text);
  if (!frontmatter) return { frontmatter: null, body: text };
  const lines = frontmatter[0].split('\n').length - 1;
  return { frontmatter: frontmatter[1], body: '\n'.repeat(lines) + text.slice(frontmatter[0].length) };
}

/** A finding about a page from what a parser or a compiler threw. */
export function thrown(page, error) {
  const cause = error?.cause ?? error;
  const line = cause?.line ?? cause?.place?.line ?? cause?.place?.start?.line ?? null;
  return { page, line, message: String(cause?.reason ?? cause?.message ?? cause).split('\n\n')[0] };
}

/** Print the report. */
export function report(found) {
  process.stdout.write(`${JSON.stringify(found)}\n`);
}
