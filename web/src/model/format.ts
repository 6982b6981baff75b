// Formats sizes, rates and times. Sizes use binary units and rates decimal bits, as in `longhaul
// jobs`.

const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
const RATES = ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s', 'Tbit/s'];

const formats = new Map<string, Intl.NumberFormat>();

/** Formats a number with `digits` decimal places. */
export function decimal(value: number, digits: number, locale: string): string {
  // Formats are cached: creating one costs more than using it, and lists show thousands of numbers.
  const key = `${locale} ${String(digits)}`;
  let format = formats.get(key);
  if (format === undefined) {
    format = new Intl.NumberFormat(locale, { minimumFractionDigits: digits, maximumFractionDigits: digits });
    formats.set(key, format);
  }
  return format.format(value);
}

function scaled(value: number, step: number, units: string[], locale: string): string {
  let unit = 0;
  let rest = value;
  // From 999.5, the smaller unit would be shown as 1000.
  while (unit + 1 < units.length && rest >= step - 0.5) {
    rest /= step;
    unit += 1;
  }
  const digits = unit === 0 || rest >= 99.95 ? 0 : 1;
  return `${decimal(rest, digits, locale)} ${units[unit] ?? ''}`;
}

/** Formats a size, such as `1.5 GiB`. */
export function formatSize(bytes: number, locale: string): string {
  return scaled(Math.max(0, bytes), 1024, SIZES, locale);
}

/** Formats a rate in bits per second, such as `942 Mbit/s`. */
export function formatRate(bps: number, locale: string): string {
  return scaled(Number.isFinite(bps) ? Math.max(0, bps) : 0, 1000, RATES, locale);
}

/** Formats a count, such as `4,211`. */
export function formatCount(count: number, locale: string): string {
  return decimal(count, 0, locale);
}

/** Formats a duration, such as `17 s`, `4 min 05 s`, `3 h 07 min` or `2 d 4 h`. */
export function formatDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const pad = (value: number): string => String(value).padStart(2, '0');
  if (whole < 60) return `${String(whole)} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${String(minutes)} min ${pad(whole % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${String(hours)} h ${pad(minutes % 60)} min`;
  return `${String(Math.floor(hours / 24))} d ${String(hours % 24)} h`;
}

const moments = new Map<string, Intl.DateTimeFormat>();

/**
 * Formats an RFC 3339 timestamp in the local time zone, to the minute, or to the second with
 * `seconds`. Returns an empty string if it is invalid.
 */
export function formatMoment(moment: string | null | undefined, locale: string, seconds = false): string {
  if (moment === null || moment === undefined) return '';
  const date = new Date(moment);
  if (Number.isNaN(date.getTime())) return '';
  const key = `${locale} ${String(seconds)}`;
  let format = moments.get(key);
  if (format === undefined) {
    format = new Intl.DateTimeFormat(locale, {
      year: 'numeric',
      month: '2-digit',
      day: '2-digit',
      hour: '2-digit',
      minute: '2-digit',
      ...(seconds ? { second: '2-digit' } : {}),
    });
    moments.set(key, format);
  }
  return format.format(date);
}

/** Estimates the seconds until the copy is complete; null if that is unknown. */
export function secondsLeft(progress: {
  bytes?: number;
  bytes_found?: number;
  walk_complete?: boolean;
  bps?: number;
}): number | null {
  const { bytes = 0, bytes_found = 0, walk_complete = false, bps = 0 } = progress;
  if (!walk_complete || bps <= 0 || bytes_found < bytes) return null;
  return ((bytes_found - bytes) * 8) / bps;
}
