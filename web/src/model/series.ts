// Rate of a job over time by route, as columns of equal length for the plot.

import type { Progress } from '../api/types';

/** Maximum number of samples, which arrive about once a second. */
const MAX_SAMPLES = 900;

export class RateSeries {
  /** Seconds since the Unix epoch, ascending. */
  times: number[] = [];
  /** Bits per second of each route; null while the route was not in use. */
  routes = new Map<string, (number | null)[]>();

  add(progress: Progress, now: number): void {
    const last = this.times[this.times.length - 1];
    // The plot requires strictly ascending times.
    if (last !== undefined && now <= last) return;
    const rates = Object.entries(progress.routes_bps ?? {});
    // A copy within one machine has no routes.
    const current = new Map(rates.length > 0 ? rates : [['', progress.bps ?? 0]]);
    for (const route of current.keys()) {
      if (!this.routes.has(route)) this.routes.set(route, this.times.map(() => null));
    }
    this.times.push(now);
    for (const [route, values] of this.routes) values.push(current.get(route) ?? null);
    if (this.times.length <= MAX_SAMPLES) return;
    this.times.shift();
    for (const [route, values] of this.routes) {
      values.shift();
      if (values.every((value) => value === null)) this.routes.delete(route);
    }
  }
}
