import { describe, expect, test } from 'vitest';
import { display, displayParts } from '../src/model/display';

describe('display', () => {
  test('leaves what shows as it is', () => {
    for (const text of ['', 'results-7.dat', 'Größe', 'データ', 'مرحبا', '👩‍🔬', 'a b', '<b>&amp;']) {
      expect(display(text)).toBe(text);
    }
  });

  test('writes out what does not show or changes the order', () => {
    expect(display('gpj.\u202eexe')).toBe('gpj.\\u{202e}exe');
    expect(display('a\nb\tc\0')).toBe('a\\u{a}b\\u{9}c\\u{0}');
    expect(display('\u2066\u2069\u200f\u061c')).toBe('\\u{2066}\\u{2069}\\u{200f}\\u{61c}');
    expect(display('\u009b\u007f\u00ad\ufeff\u200b')).toBe('\\u{9b}\\u{7f}\\u{ad}\\u{feff}\\u{200b}');
    expect(display('\ud800')).toBe('\\u{d800}');
    expect(display('\u{e0041}')).toBe('\\u{e0041}');
  });

  test('tells apart what was written out', () => {
    expect(displayParts('a\u202e\u202db')).toEqual([
      { text: 'a', escaped: false },
      { text: '\\u{202e}\\u{202d}', escaped: true },
      { text: 'b', escaped: false },
    ]);
    // A name that contains an escape sequence literally is not marked as escaped.
    expect(displayParts('\\u{202e}')).toEqual([{ text: '\\u{202e}', escaped: false }]);
  });
});
