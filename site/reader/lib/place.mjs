// Where the finished site is put. A folder is replaced only when a build made all that is in it, and a build that is
// stopped leaves neither scratch nor a missing site: if it cannot clean up itself, the next one does.
import { existsSync, lstatSync, readdirSync, realpathSync, renameSync, rmSync } from 'node:fs';
import { cp, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { LANGUAGES } from './website.mjs';

const LANGUAGE = Object.keys(LANGUAGES).join('|');
const OWN = new RegExp(
  [
    String.raw`^index\.html$|^(${LANGUAGE})/.+\.html$|^search/(${LANGUAGE})\.js$`,
    String.raw`^assets/.+\.(css|js|woff2)$|^assets/.+/LICENSE$|^images/.+\.(svg|png|jpe?g|webp|ico)$`,
    String.raw`(^|/)\.DS_Store$`, // macOS puts one where somebody has looked
  ].join('|'),
);
const FOLDERS = ['assets', 'images', 'search', ...Object.keys(LANGUAGES)];
const MARK = 'assets/theme.js'; // in every site since the first
const REMOVE = { recursive: true, force: true, maxRetries: 3 };

/** The path without links, of which the last parts need not exist yet. */
export function withoutLinks(file) {
  const parent = path.dirname(file);
  if (parent === file || existsSync(file)) return realpathSync(file);
  return path.join(withoutLinks(parent), path.basename(file));
}

/** Whether `folder` is `file` or a folder around it. */
function holds(folder, file) {
  const way = path.relative(folder, file);
  return way === '' || !(way === '..' || way.startsWith(`..${path.sep}`) || path.isAbsolute(way));
}

/** The first thing below `folder` that no build makes, or undefined. */
function strangerIn(folder) {
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const name = path.relative(folder, path.join(entry.parentPath, entry.name)).split(path.sep).join('/');
    const own = entry.isDirectory() ? FOLDERS.includes(name.split('/')[0]) : entry.isFile() && OWN.test(name);
    if (!own) return name;
  }
}

/** Why a site may not be put at `out`, or undefined. What is there is lost when one is put there. */
export function refusal(out, website, program) {
  if (holds(out, website) || holds(website, out)) return `${out}: the site and the website it is made from overlap`;
  if (holds(out, program)) return `${out}: holds the program that builds the site`;
  const there = lstatSync(out, { throwIfNoEntry: false });
  if (!there) return undefined;
  if (!there.isDirectory()) return `${out}: is not a folder, and is not replaced`;
  const stranger = strangerIn(out);
  if (stranger) return `${out}: is not replaced, since no build of this site makes ${stranger}, which is in it`;
  if (readdirSync(out).length && !existsSync(path.join(out, MARK)))
    return `${out}: is not replaced, since it is neither empty nor a site of this book: it has no ${MARK}`;
}

const beside = (out, kind, pid = process.pid) => `${out}.${kind}-${pid}`;

/** Puts the site that was at `out` back when the new one has not come in its place. */
function putBack(out, before) {
  if (existsSync(before) && !existsSync(out)) renameSync(before, out);
}

/** Puts the finished site at `out`: beside it first, then in its place, so that `out` is never half a site. */
export async function publish(site, out) {
  const [next, before] = [beside(out, 'next'), beside(out, 'before')];
  try {
    await cp(site, next, { recursive: true });
    if (existsSync(out)) await rename(out, before);
    await rename(next, out);
  } finally {
    putBack(out, before);
    await Promise.all([next, before].map((folder) => rm(folder, REMOVE)));
  }
}

/** What is left to do when the build has to stop at once. */
export function retreat(scratch, out) {
  putBack(out, beside(out, 'before'));
  for (const folder of [scratch, beside(out, 'next'), beside(out, 'before')]) rmSync(folder, REMOVE);
}

/** Whether a process still runs; one of another user does. */
function lives(pid) {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error.code === 'EPERM';
  }
}

/** Numbers at the end of names in `folder` that begin with `prefix`, without those of other processes that run. */
function abandoned(folder, prefix) {
  return (existsSync(folder) ? readdirSync(folder) : [])
    .filter((name) => name.startsWith(prefix) && /^\d+$/.test(name.slice(prefix.length)))
    .map((name) => Number(name.slice(prefix.length)))
    .filter((pid) => pid === process.pid || !lives(pid));
}

/** Removes what builds left that could not clean up, and puts the site back that one of them had moved away. */
export function tidy(building, out) {
  for (const pid of abandoned(building, '')) rmSync(path.join(building, String(pid)), REMOVE);
  for (const kind of ['before', 'next']) {
    for (const pid of abandoned(path.dirname(out), `${path.basename(out)}.${kind}-`)) {
      const left = beside(out, kind, pid);
      if (!lstatSync(left).isDirectory() || strangerIn(left)) continue; // somebody else's, by its content
      if (kind === 'before') putBack(out, left);
      rmSync(left, REMOVE);
    }
  }
}
