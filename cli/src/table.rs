//! Columns of text.

/// Rows of cells, each column as wide as its widest cell.
pub struct Table {
    header: Vec<&'static str>,
    /// How many columns, from the left, are text, which is aligned to the left; the rest are numbers.
    text_columns: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(header: &[&'static str], text_columns: usize) -> Table {
        Table { header: header.to_vec(), text_columns, rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn render(&self) -> String {
        let header: Vec<String> = self.header.iter().map(|&cell| cell.to_owned()).collect();
        let lines = || std::iter::once(&header).chain(&self.rows);
        let width = |column: usize| {
            lines().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..header.len()).map(width).collect();
        let mut text = String::new();
        for row in lines() {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let cell = match column < self.text_columns {
                    true => format!("{cell:<width$}  "),
                    false => format!("{cell:>width$}  "),
                };
                line.push_str(&cell);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_left_and_numbers_right() {
        let mut table = Table::new(&["op", "ms"], 1);
        table.row(vec!["softmax".into(), "1".into()]);
        table.row(vec!["–".into(), "12.5".into()]);
        assert_eq!(table.render(), "op         ms\nsoftmax     1\n–        12.5\n");
    }
}
