//! The predictor with the least past error.

/// Kind of error to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorMeasure {
    /// The mean absolute error.
    Absolute,
    /// The mean squared error.
    Squared,
}

/// Errors of predictors over the whole past of a series, as kept by the Network Weather Service.
/// Its forecast is that of the predictor with the least error.
#[derive(Debug, Clone)]
pub struct BestByPastError {
    /// Sums of the absolute and of the squared errors, one pair per predictor.
    sums: Box<[(f64, f64)]>,
    count: u64,
}

impl BestByPastError {
    /// Creates a record for `experts` predictors without errors.
    #[must_use]
    pub fn new(experts: usize) -> Self {
        Self {
            sums: vec![(0.0, 0.0); experts].into(),
            count: 0,
        }
    }

    /// Takes the predictions of all predictors, and the actual value.
    pub fn update(&mut self, predicted: &[f32], value: f64) {
        self.count = self.count.saturating_add(1);
        for ((absolute, squared), predicted) in self.sums.iter_mut().zip(predicted) {
            let error = (value - f64::from(*predicted)).abs();
            *absolute += error;
            *squared += error * error;
        }
    }

    /// Returns the index of the predictor with the least error so far, the first of equal ones.
    #[must_use]
    pub fn best(&self, by: ErrorMeasure) -> usize {
        let error = |sums: &(f64, f64)| match by {
            ErrorMeasure::Absolute => sums.0,
            ErrorMeasure::Squared => sums.1,
        };
        let all = self.sums.iter().map(error).enumerate();
        all.reduce(|best, next| if next.1 < best.1 { next } else { best })
            .map_or(0, |(index, _)| index)
    }

    /// Returns the mean error of a predictor so far, on the scale of the predictions, or `None`
    /// before the first value.
    #[must_use]
    pub fn mean(&self, expert: usize, by: ErrorMeasure) -> Option<f64> {
        let (absolute, squared) = self.sums.get(expert)?;
        let sum = match by {
            ErrorMeasure::Absolute => absolute,
            ErrorMeasure::Squared => squared,
        };
        (self.count > 0).then(|| sum / self.count as f64)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_error_wins_by_either_measure() {
        let mut best = BestByPastError::new(2);
        assert_eq!(
            (
                best.best(ErrorMeasure::Absolute),
                best.mean(0, ErrorMeasure::Absolute)
            ),
            (0, None)
        );
        // The first errs by 3 once in four times, the second by 1 each time.
        for predicted in [[3.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]] {
            best.update(&predicted, 0.0);
        }
        assert_eq!(best.best(ErrorMeasure::Absolute), 0);
        assert_eq!(best.best(ErrorMeasure::Squared), 1);
        assert_eq!(best.mean(0, ErrorMeasure::Absolute), Some(0.75));
        assert_eq!(best.mean(0, ErrorMeasure::Squared), Some(2.25));
    }
}
