// The fonts that the site brings along, from the packages they come in. Nothing is fetched when a page is read.
import { readdirSync } from 'node:fs';
import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';

const require = createRequire(import.meta.url);
const KATEX = path.dirname(require.resolve('katex/package.json'));
const SERIF = path.dirname(require.resolve('@fontsource-variable/source-serif-4/package.json'));
const OTHER_FORMATS = /,url\([^)]*\) format\("(?:woff|truetype)"\)/g;

async function copyAll(from, to, names) {
  await mkdir(to, { recursive: true });
  await Promise.all(names.map((name) => copyFile(path.join(from, name), path.join(to, name))));
}

/** KaTeX's style sheet with its fonts, in the one format that every browser of the last ten years reads. */
async function copyKatex(to) {
  const fonts = path.join(KATEX, 'dist', 'fonts');
  await copyAll(
    fonts,
    path.join(to, 'fonts'),
    readdirSync(fonts).filter((name) => name.endsWith('.woff2')),
  );
  await copyAll(KATEX, to, ['LICENSE']);
  const css = await readFile(path.join(KATEX, 'dist', 'katex.min.css'), 'utf8');
  await writeFile(path.join(to, 'katex.css'), css.replace(OTHER_FORMATS, ''));
}

/** The Latin letters of the text, upright and italic; public/assets/fonts.css names them. */
async function copySerif(to) {
  const names = ['normal', 'italic'].map((style) => `source-serif-4-latin-wght-${style}.woff2`);
  await copyAll(path.join(SERIF, 'files'), to, names);
  await copyAll(SERIF, to, ['LICENSE']);
}

/** Puts all fonts below the folder `assets` of a site. */
export async function copyFonts(assets) {
  await Promise.all([copyKatex(path.join(assets, 'katex')), copySerif(path.join(assets, 'serif'))]);
}
