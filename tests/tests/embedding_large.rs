//! Rows of tables with more than 2^31 elements in the result: on a GPU with room for them.

use warpwright::ops::{self, Positions};
use warpwright::{DType, Result, Tensor};
use warpwright_tests::{assert_same, roomy_gpu};

/// Bytes that a GPU must have to spare.
const ROOM: usize = 16 << 30;
const COLS: usize = 1000;
const WORDS: usize = 97;

#[test]
fn rows_past_2_to_the_31_elements_are_written_and_summed() -> Result<()> {
    let Some(gpu) = roomy_gpu("rows_past_2_to_the_31_elements_are_written_and_summed", ROOM) else {
        return Ok(());
    };
    let count = (1 << 31) / COLS + 5;
    let tokens: Vec<i32> = (0..count).map(|i| (i % WORDS) as i32).collect();
    let tokens = Tensor::from_slice(&gpu, &[count], &tokens)?;
    let table: Vec<f32> = (0..WORDS * COLS).map(|i| (i / COLS * 100 + i % 100) as f32).collect();
    let table = ops::cast(&Tensor::from_slice(&gpu, &[WORDS, COLS], &table)?, DType::BF16)?;
    let y = ops::embedding(&tokens, &table, None)?;
    assert!(y.len() > 1 << 31);
    for row in [0, count / 2, count - 2, count - 1] {
        let want = table.narrow(0, row % WORDS, 1)?.to_bytes()?;
        assert_same(&y.narrow(0, row, 1)?.to_bytes()?, &want, format!("row {row}"));
    }
    drop(y);

    // A gradient that is 1 in the last row alone, then in the first alone.
    for row in [count - 1, 0] {
        let dy = Tensor::zeros(&gpu, DType::BF16, &[count, COLS])?;
        let ones = ops::cast(&Tensor::from_slice(&gpu, &[1, COLS], &[1.0f32; COLS])?, DType::BF16)?;
        dy.narrow(0, row, 1)?.copy_from(&ones)?;
        let wpe = Tensor::zeros(&gpu, DType::BF16, &[count, COLS])?;
        let positions = Some(Positions::new(&wpe));
        let (dwte, dwpe) = ops::embedding_backward(&tokens, &dy, &table, positions)?;
        let want: Vec<f64> = (0..WORDS * COLS).map(|i| f64::from(i / COLS == row % WORDS)).collect();
        assert_same(&dwte.to_f64()?, &want, format!("dwte of row {row}"));
        let dwpe = dwpe.map_or(Ok(vec![]), |dwpe| dwpe.narrow(0, row, 1)?.to_f64())?;
        assert_same(&dwpe, &[1.0; COLS], format!("dwpe of row {row}"));
    }
    Ok(())
}
