import { describe, expect, test } from 'vitest';
import { asRoot, copyFault, fitsKind, isEntryName, locate, locateInto, placeKind } from '../src/model/location';

describe('locations', () => {
  test('lie beneath the root of their place', () => {
    expect(locate('/home/ana/', [])).toBe('/home/ana/');
    expect(locate('/home/ana/', ['runs', '7'])).toBe('/home/ana/runs/7');
    expect(locate('ana@dtn.example:', ['runs'])).toBe('ana@dtn.example:runs');
    expect(locate('lh://dtn.example/', ['runs'])).toBe('lh://dtn.example/runs');
  });

  test('that are copied into end with a slash', () => {
    expect(locateInto('/home/ana/', [])).toBe('/home/ana/');
    expect(locateInto('/home/ana/', ['runs'])).toBe('/home/ana/runs/');
    // `ana@dtn.example:/` would be the root of the host's file system.
    expect(locateInto('ana@dtn.example:', [])).toBe('ana@dtn.example:./');
    expect(locateInto('ana@dtn.example:', ['runs'])).toBe('ana@dtn.example:runs/');
  });

  test('names that would lead elsewhere are none', () => {
    for (const name of ['', '.', '..', 'a/b', '/', 'a\0']) expect(isEntryName(name)).toBe(false);
    for (const name of ['a', '...', '.a', '-', 'a b', 'a:b']) expect(isEntryName(name)).toBe(true);
  });

  test('roots as people write them', () => {
    expect(asRoot(' /data ')).toBe('/data/');
    expect(asRoot('ana@dtn:')).toBe('ana@dtn:');
    expect(asRoot('ana@dtn:runs')).toBe('ana@dtn:runs/');
    expect(asRoot('lh://dtn:7511')).toBe('lh://dtn:7511/');
    expect(placeKind('/data/')).toBe('local');
    expect(placeKind('ana@dtn:')).toBe('ssh');
    expect(placeKind('lh://dtn/')).toBe('server');
  });

  test('kinds of places', () => {
    expect(fitsKind('/data', 'local')).toBe(true);
    expect(fitsKind('data', 'local')).toBe(false);
    expect(fitsKind('ana@dtn:', 'ssh')).toBe(true);
    expect(fitsKind('ana@[2001:db8::1]:runs', 'ssh')).toBe(true);
    expect(fitsKind('dtn', 'ssh')).toBe(false);
    expect(fitsKind('lh://dtn/', 'ssh')).toBe(false);
    expect(fitsKind('lh://dtn', 'server')).toBe(true);
    expect(fitsKind('lh://', 'server')).toBe(false);
  });

  test('copies that make no sense', () => {
    expect(copyFault(['/a/b'], '/a/')).toBe('same');
    expect(copyFault(['/a'], '/')).toBe('same');
    expect(copyFault(['dtn:b'], 'dtn:./')).toBe('same');
    expect(copyFault(['/a/b'], '/a/b/')).toBe('inside');
    expect(copyFault(['/a/b'], '/a/b/c/')).toBe('inside');
    expect(copyFault(['/a/b'], '/a/bc/')).toBeNull();
    expect(copyFault(['/a/b'], 'dtn:a/')).toBeNull();
    expect(copyFault(['dtn:b/c'], 'dtn:./')).toBeNull();
  });
});
