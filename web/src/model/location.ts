// Locations as the API takes them: an absolute path here, `user@host:path`, or `lh://host[:port]/path`. In a place, a location is the
// place's root and a path beneath it; a root ends with a slash or a colon.

/** Names from the far end that cannot be the name of an entry would lead somewhere else when put into a path. */
export function isEntryName(name: string): boolean {
  return name !== '' && name !== '.' && name !== '..' && !name.includes('/') && !name.includes('\0');
}

/** The location of what lies at `path` beneath `root`. */
export function locate(root: string, path: readonly string[]): string {
  return root + path.join('/');
}

/** The same as a directory that something is put into. */
export function locateInto(root: string, path: readonly string[]): string {
  if (path.length > 0) return `${locate(root, path)}/`;
  // Behind a colon a slash would be the root of the host's file system, not the home directory.
  return root.endsWith(':') ? `${root}./` : root;
}

/** A root as people write it, made one that paths can be appended to. */
export function asRoot(written: string): string {
  const root = written.trim();
  if (root === '' || root.endsWith('/')) return root;
  if (root.endsWith(':') && !root.startsWith('lh:')) return root;
  return `${root}/`;
}

/** What kind of place it is. */
export type PlaceKind = 'local' | 'ssh' | 'server';

export function placeKind(root: string): PlaceKind {
  if (root.startsWith('lh://')) return 'server';
  return root.startsWith('/') ? 'local' : 'ssh';
}

/** Whether a root can be one of this kind; the agent decides, this only helps while writing. */
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

/** Why a copy of these makes no sense, if so. */
export function copyFault(sources: readonly string[], into: string): 'same' | 'inside' | null {
  const plain = into.replace(/(^|[:/])\.\/$/, '$1');
  for (const source of sources) {
    if (plain.startsWith(`${source}/`)) return 'inside';
    const end = Math.max(source.lastIndexOf('/'), source.startsWith('/') ? -1 : source.lastIndexOf(':'));
    if (source.slice(0, end + 1) === plain) return 'same';
  }
  return null;
}
