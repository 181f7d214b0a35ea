// A picture's size is written into the page, so that the text does not jump when the picture arrives.
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { visit } from 'unist-util-visit';

const VIEW_BOX = /<svg[^>]*\bviewBox="[\d.-]+[ ,]+[\d.-]+[ ,]+([\d.]+)[ ,]+([\d.]+)"/;

/** Width and height of an SVG from its view box, in whole units; undefined where there is none. */
export function sizeOf(svg) {
  const [, width, height] = VIEW_BOX.exec(svg) ?? [];
  return width && { width: Math.round(Number(width)), height: Math.round(Number(height)) };
}

/** Rehype plugin: sizes for the site's own SVG pictures. One that is missing is reported when links are checked. */
export function sizeImages() {
  return (tree) => {
    visit(tree, { tagName: 'img' }, ({ properties }) => {
      const file = path.join(process.env.BOOK_WEBSITE, properties.src ?? '');
      if (file.endsWith('.svg') && existsSync(file)) Object.assign(properties, sizeOf(readFileSync(file, 'utf8')));
    });
  };
}
