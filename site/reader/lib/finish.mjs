// What is done when Astro has written its pages: files added, links made relative and checked, search indexed.
import { readdirSync } from 'node:fs';
import { cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { BookFault } from './faults.mjs';
import { copyFonts } from './fonts.mjs';
import { relinkPages } from './links.mjs';
import { indexScript, titleOf } from './search-index.mjs';
import { readWebsite } from './website.mjs';

// Astro's own notes on the content it compiled; no page uses them.
const LEFTOVERS = ['content-assets.mjs', 'content-modules.mjs'];

/** Names of all files below a folder, with slashes. */
function filesBelow(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)).split(path.sep).join('/'));
}

/** A fault of a finished page, under the name of the file that a writer would mend. */
const lineOf = ({ page, fault }) => `${page.replace(/\.html$/, '.mdx')}: ${fault}`;

/** Writes `search/LANGUAGE.js` for each language, with the pages in reading order. */
async function writeIndexes(out, website, pages) {
  await mkdir(path.join(out, 'search'), { recursive: true });
  for (const { language, groups } of website.languages) {
    const listed = groups
      .flatMap((group) => group.pages)
      .map((id) => {
        const html = pages.get(`${id}.html`);
        return { url: `${id}.html`, html, title: titleOf(html) };
      });
    await writeFile(path.join(out, 'search', `${language}.js`), indexScript(listed));
  }
}

/** The Astro integration that makes a folder of pages a site that opens from disk. */
export function finishSite(folder) {
  const finish = async ({ dir }) => {
    const out = fileURLToPath(dir);
    await Promise.all(LEFTOVERS.map((name) => rm(path.join(out, name), { force: true })));
    await cp(path.join(folder, 'images'), path.join(out, 'images'), { recursive: true });
    await copyFonts(path.join(out, 'assets'));
    const website = readWebsite(folder);
    const files = filesBelow(out);
    const html = files.filter((name) => name.endsWith('.html'));
    const read = await Promise.all(html.map(async (name) => [name, await readFile(path.join(out, name), 'utf8')]));
    const { pages, faults } = relinkPages(new Map(read), new Set(files));
    if (faults.length) throw new BookFault(faults.map(lineOf));
    await Promise.all([...pages].map(([name, text]) => writeFile(path.join(out, name), text)));
    await writeIndexes(out, website, pages);
  };
  return { name: 'finish-site', hooks: { 'astro:build:done': finish } };
}
