// Locations of the API: an absolute local path, `user@host:path`, or `lh://host[:port]/path`. A
// location in a place is the place's root and a path below it. A root ends with a slash or a colon.

/** Returns true if a name from the far end is safe in a path, and leads to no other directory. */
export function isEntryName(name: string): boolean {
  return name !== '' && name !== '.' && name !== '..' && !name.includes('/') && !name.includes('\0');
}

/** Returns the location of `path` below `root`. */
export function locate(root: string, path: readonly string[]): string {
  return root + path.join('/');
}

/** Returns the location of the directory `path` below `root`, as the destination of a copy. */
export function locateInto(root: string, path: readonly string[]): string {
  if (path.length > 0) return `${locate(root, path)}/`;
  // A slash after the colon would mean the root of the host's file system, not the home directory.
  return root.endsWith(':') ? `${root}./` : root;
}

/** Normalises a root as typed, so that paths can be appended to it. */
export function asRoot(written: string): string {
  const root = written.trim();
  if (root === '' || root.endsWith('/')) return root;
  if (root.endsWith(':') && !root.startsWith('lh:')) return root;
  return `${root}/`;
}

/** Kind of a place. */
export type PlaceKind = 'local' | 'ssh' | 'server';

export function placeKind(root: string): PlaceKind {
  if (root.startsWith('lh://')) return 'server';
  return root.startsWith('/') ? 'local' : 'ssh';
}

/** Returns true if a root may be of this kind. This only helps while typing; the agent decides. */
export function fitsKind(root: string, kind: PlaceKind): boolean {
  switch (kind) {
    case 'local':
      return root.startsWith('/');
    case 'server':
      return /^lh:\/\/[^/]+/.test(root);
    case 'ssh':
      return /^(?:[^/:@]+@)?(?:\[[^\]]+\]|[^/:@[\]]+):/.test(root) && !root.startsWith('lh://');
  }
}

/** Returns the reason why this copy makes no sense, or null. */
export function copyFault(sources: readonly string[], into: string): 'same' | 'inside' | null {
  const plain = into.replace(/(^|[:/])\.\/$/, '$1');
  for (const source of sources) {
    if (plain.startsWith(`${source}/`)) return 'inside';
    const end = Math.max(source.lastIndexOf('/'), source.startsWith('/') ? -1 : source.lastIndexOf(':'));
    if (source.slice(0, end + 1) === plain) return 'same';
  }
  return null;
}
